"""kill -9 of every program while a run is in every state. Runs of one wave are struck, and go on, side by side."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from runs.engine.states import RunStatus, final_status
from tests.faults import invariants, matrix
from tests.faults.harness import ARun, Product
from tests.faults.holding import HOLDS, Held
from tests.faults.matrix import FAULTS, OF_THE_INSTALLATION, OF_THE_RUN, STATES, TABLE, TOGETHER, Ends, Void
from workers.contract.wire.names import EndReason, EventKind
from workers.supervisor.processes.procfs import Identity

processes = pytest.mark.processes
WAVES = [("trainer", "vllm", "engine"), ("supervisor",), *((fault,) for fault in OF_THE_INSTALLATION)]
"""Faults whose runs are held at the same time. One of the installation strikes all states at once."""
GATED = tuple(HOLDS)
PATIENT = {
    "GRPO_TERM_GRACE_S": "3600",  # `stopping` is held by processes that end on SIGTERM when a gate opens
    "GRPO_SAVE_DEADLINE_S": "3600",
    "GRPO_GPU_FREE_DEADLINE_S": "3600",
    "GRPO_TREE_SCAN_S": "0.5",
    "CONTROLPLANE_LAUNCH_AGAIN_S": "40",
}
"""A held state must not end by itself, and a launch must have been claimed, however slow the machine is."""


# --- the table -----------------------------------------------------------------------------------------------


def test_the_table_has_every_fault_in_every_state() -> None:
    assert set(TABLE) == set(itertools.product([*OF_THE_RUN, *OF_THE_INSTALLATION], STATES))
    told = {(fault, state) for fault, cells in OF_THE_RUN.items() for state in cells}
    assert told == set(matrix.live(OF_THE_RUN)), "an expectation for a program that isn't there"


def test_every_live_cell_names_an_end_and_every_void_one_says_why() -> None:
    for cell, what in TABLE.items():
        if isinstance(what, Void):
            assert len(what.why) > 30, cell
        else:
            assert final_status(EndReason(what.reason)) == RunStatus(what.status), cell


# --- the waves -----------------------------------------------------------------------------------------------


@dataclass
class Struck:
    """One run that a fault has met in a state."""

    run: ARun
    steps: int
    """What its trainer had written when the fault struck."""


@dataclass
class Waves:
    product: Product
    done: dict[tuple[str, ...], dict[tuple[str, str], Struck] | BaseException] = field(default_factory=dict)

    def struck(self, fault: str, state: str) -> Struck:
        wave = next(wave for wave in WAVES if fault.removeprefix("supervisor+") in wave)
        if wave not in self.done:
            self.product.end_all()
            self.product.healthy()
            try:
                self.done[wave] = self._strike(wave)
            except (AssertionError, OSError) as error:
                self.done[wave] = error
        found = self.done[wave]
        if isinstance(found, BaseException):
            raise AssertionError(f"the wave of {' and '.join(wave)} failed") from found
        return found[fault, state]

    def _strike(self, wave: tuple[str, ...]) -> dict[tuple[str, str], Struck]:
        return self._strike_runs(wave) if wave[0] in OF_THE_RUN else self._strike_installation(wave[0])

    def _strike_runs(self, faults: tuple[str, ...]) -> dict[tuple[str, str], Struck]:
        """Each live cell has a run of its own."""
        cells = matrix.live(faults)
        held = Held(self.product)
        runs = held.bring(*(f"{fault}-{state}" for fault, state in cells))
        invariants.no_secret_in_processes(runs.values())
        struck = {}
        for (fault, state), run in zip(cells, runs.values(), strict=True):
            struck[fault, state] = Struck(run, _steps_written(run))
            run.kill(fault)
        # Not released: nothing but the fault ends these, except where an end was waited for already.
        held.release(*(f"{fault}-{state}" for fault, state in cells if state in ("stopping", "verifying")))
        return struck

    def _strike_installation(self, fault: str) -> dict[tuple[str, str], Struck]:
        """All states at the same moment: one kill, a cell for each."""
        held = Held(self.product)
        orphaned = held.bring(*GATED, "orphaned-training").pop("orphaned-training")
        held.queue(behind=held.runs["training"])
        before = {name: _identities(held.runs[name]) for name in (*GATED, "queued")}
        pids = self.product.fleet.pids()
        with held.nobody_takes_launches():
            held.send()
            struck = {(fault, name): Struck(held.runs[name], _steps_written(held.runs[name])) for name in STATES}
            struck[f"supervisor+{fault}", "training"] = Struck(orphaned, _steps_written(orphaned))
            orphaned.kill("supervisor")
            for program in OF_THE_INSTALLATION[fault]:
                self.product.kill(program)
            if fault in matrix.FORGETFUL:
                shutil.rmtree(self.product.stack.installation.data / "valkey")
                (self.product.stack.installation.data / "valkey").mkdir()
        if "web" in OF_THE_INSTALLATION[fault] and "valkey" not in OF_THE_INSTALLATION[fault]:
            # The claim of the run whose launch was under way finds no web.
            sent = held.runs["sent"]
            self.product.until(lambda: "supervisor" in sent.processes(), sent.why, tended=False)
        self.product.healthy()
        now = self.product.fleet.pids()
        assert all(now[program] != pids[program] for program in OF_THE_INSTALLATION[fault]), (pids, now)
        ticked = self._ticks()
        self.product.until(lambda: self._ticks() > ticked, "the tick has not come back")
        _nothing_happened(held, before)
        held.release(*GATED)
        return struck

    def _ticks(self) -> int:
        log = self.product.stack.installation.data / "control.log"
        return len(re.findall(rb"Task runs\.tick\[\S+\] succeeded", log.read_bytes()))


def _nothing_happened(held: Held, before: dict[str, set[Identity]]) -> None:
    """The fault is over: the same processes are in the same states, and what is written still arrives."""
    for name, identities in before.items():
        run = held.runs[name]
        row = run.look()
        assert (row["status"], row["reason"]) == (STATES[name].status, ""), run.why(row)
        assert _identities(run) == identities, name
    training = held.runs["training"]
    training.until_step(training.look()["step"] + 3)


def _identities(run: ARun) -> set[Identity]:
    return {row.identity for row in run.processes().values()}


def _steps_written(run: ARun) -> int:
    path = run.folder / "metrics.jsonl"
    return path.read_bytes().count(b'"kind":"train"') if path.exists() else 0


@pytest.fixture(scope="module")
def waves() -> Iterator[Waves]:
    with Product.running(gpus=32, **PATIENT) as product:
        yield Waves(product)


# --- the cells -----------------------------------------------------------------------------------------------

CELLS = sorted(
    (*matrix.live(FAULTS), *TOGETHER),
    key=lambda cell: FAULTS.index(cell[0].removeprefix("supervisor+")),
)
"""In the order of the waves."""


@processes
@pytest.mark.parametrize(("fault", "state"), [pytest.param(*cell, id="-".join(cell)) for cell in CELLS])
def test_kill_9(fault: str, state: str, waves: Waves) -> None:
    expected = TOGETHER.get((fault, state)) or TABLE[fault, state]
    assert isinstance(expected, Ends)
    struck = waves.struck(fault, state)
    row = invariants.check(struck.run, status=expected.status, reason=expected.reason)
    for words in expected.words:
        assert words in row["detail"], row["detail"]
    _and_more(fault, state, struck)


def _and_more(fault: str, state: str, struck: Struck) -> None:
    lines = struck.run.outbox()
    if fault.startswith("supervisor") and state == "training":
        assert sum(line["kind"] == EventKind.TRAIN for line in lines) > struck.steps, "nothing after its death was kept"
    if fault in matrix.FORGETFUL and state == "sent":
        assert struck.run.look()["launches_sent"] == 2
    if fault in OF_THE_INSTALLATION and state == "saving":
        assert any(line["kind"] == EventKind.CHECKPOINT for line in lines)
