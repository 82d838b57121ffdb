"""A stop, of either kind, whenever it comes and however many people ask for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.faults import invariants
from tests.faults.harness import CPU, ARun, Product, on_gpus, with_server
from tests.faults.situations import ask_to_stop, at_once, deaf_host, wait

pytestmark = pytest.mark.processes

EVENTS = """
from runs.engine.records import RunEvent
result = [[e.kind, e.actor, e.data] for e in RunEvent.objects.filter(run=run).order_by("id")]
"""


def events(run: ARun, kind: str) -> list[dict[str, Any]]:
    told = run.product.stack.django(EVENTS, run=run.run)
    return [data for each, _, data in told if each == kind]


# --- each state ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """How a run is held in a state, and how it ends when it is stopped there."""

    hardware: dict[str, Any]
    row: Callable[[dict[str, Any]], object]
    fakes: dict[str, str] = field(default_factory=dict)
    reason: str = "stopped_by_user"


STATES = {
    "queued": Held(on_gpus(9), lambda row: row["waits_for"], reason="cancelled"),
    "preparing": Held(on_gpus(), lambda row: row["phase"] == "preparing", {"supervisor": "gate"}),
    "vllm_loading": Held(with_server(), lambda row: row["phase"] == "vllm_starting", {"vllm": "gate"}),
    "training": Held(CPU, lambda row: row["step"] >= 2),
    "training_with_a_server": Held(with_server(), lambda row: row["step"] >= 2),
}


@pytest.mark.telling
@pytest.mark.parametrize("mode", ["save", "now"])
def test_a_stop_ends_a_run_in_each_state(product: Product, mode: str) -> None:
    runs = {state: product.launch(held.hardware, **held.fakes) for state, held in STATES.items()}
    for state, run in runs.items():
        run.until(STATES[state].row)
    assert all(run.stop(mode) for run in runs.values())
    for state, run in runs.items():
        invariants.check(run, status="stopped", reason=STATES[state].reason)
        saved = [line for line in run.outbox() if line["kind"] == "checkpoint"]
        assert bool(saved) == (mode == "save" and state.startswith("training")), state
        assert not run.stop("now"), f"{state}: there is nothing left to stop"


@pytest.mark.parametrize("mode", ["save", "now"])
def test_a_stop_before_the_claim_starts_nothing(product: Product, mode: str) -> None:
    with deaf_host(product):
        run = product.launch(just_heard=True)
        run.until(lambda row: row["status"] == "starting" and not row["claimed"])
        assert run.stop(mode)
    invariants.check(run, status="stopped", reason="cancelled")
    assert not (run.folder / "environment.json").exists(), "a trainer was started"


@pytest.mark.parametrize(("second", "saves"), [("save", True), ("now", False)])
def test_a_stop_while_the_trainer_saves(product: Product, second: str, saves: bool) -> None:
    run = product.launch(trainer="gate,gate_save")
    run.until_step(2)
    run.stop("save")
    run.until(lambda row: row["phase"] == "stopping")
    assert run.stop(second) is not saves, "a second `save` changes nothing"
    if saves:
        run.open_gate("save")
    invariants.check(run, status="stopped", reason="stopped_by_user")
    assert bool([line for line in run.outbox() if line["kind"] == "checkpoint"]) is saves


@pytest.mark.parametrize("mode", ["save", "now"])
def test_a_stop_while_the_gpus_are_proved_free_changes_nothing(product: Product, mode: str) -> None:
    run = product.launch(on_gpus())
    gpu = run.until_step(1)["placement"]["gpus"][0]
    product.gpus.others(gpu, 5000)
    run.open_gate("trainer")
    run.until(lambda row: row["phase"] == "verifying")
    run.stop(mode)
    run.until(lambda row: row["stop_mode"] == mode)
    product.gpus.others(gpu, 0)
    invariants.check(run, status="succeeded", reason="completed")


# --- trees that don't want to go -------------------------------------------------------------------------------


@pytest.mark.telling
@pytest.mark.parametrize("mode", ["save", "now"])
def test_processes_that_hide_refuse_or_multiply_go_too(product: Product, mode: str) -> None:
    """A grandchild in a session of its own under another title that ignores SIGTERM; one that forks while it is
    killed; a server that ignores SIGTERM and has an orphan."""
    runs = [
        product.launch(on_gpus(), trainer="gate,renamed,ignore_term"),
        product.launch(trainer="gate,storm:120"),
        product.launch(with_server(), trainer="gate,ignore_term", vllm="ignores_sigterm,leaves_orphan"),
    ]
    for run in runs:
        run.until_step(2)
        run.stop(mode)
    for run in runs:
        row = invariants.check(run, status="stopped", reason="stopped_by_user")
        assert row["receipt"]["orphans_found"] >= 1, row["receipt"]


# --- several people, several runs --------------------------------------------------------------------------------


@pytest.mark.parametrize("modes", [("save", "save"), ("save", "now"), ("now", "now")], ids="+".join)
def test_two_people_stop_one_run_at_once(product: Product, modes: tuple[str, str]) -> None:
    runs = [product.launch() for _ in range(2)]
    for run in runs:
        run.until_step(2)
    with product.stack.client("operator") as one, product.stack.client("admin") as other:
        for run in runs:
            at_once(lambda run=run: ask_to_stop(one, run, modes[0]), lambda run=run: ask_to_stop(other, run, modes[1]))
    for run in runs:
        row = invariants.check(run, status="stopped", reason="stopped_by_user")
        asked = [data["mode"] for data in events(run, "requested")]
        assert row["stop_mode"] == asked[-1]
        assert asked in ([[modes[0]]] if len(set(modes)) == 1 else [["save", "now"], ["now"], ["save"]])
        seen = [data["mode"] for data in events(run, "stop_seen")]
        assert len(seen) == len(set(seen)), "a stop was taken on twice"


def test_several_are_stopped_at_once_from_the_list(product: Product) -> None:
    ended = product.launch(trainer="steps:2")
    ended.ended()
    training = [product.launch(), product.launch(on_gpus())]
    loading, queued = product.launch(with_server(), vllm="gate"), product.launch(on_gpus(9))
    untouched = product.launch()
    for run in (*training, untouched):
        run.until_step(2)
    loading.until(STATES["vllm_loading"].row)
    queued.until(STATES["queued"].row)
    with product.stack.client("operator") as client:
        chosen = [run.run for run in (ended, *training, loading, queued)]
        assert client.post("/runs/stop", data={"mode": "now", "run": chosen}).status_code == 302
    for run in (*training, loading):
        invariants.check(run, status="stopped", reason="stopped_by_user")
    invariants.check(queued, status="stopped", reason="cancelled")
    invariants.check(ended, status="succeeded", reason="completed")
    assert not untouched.look()["stop_mode"]
    untouched.open_gate("trainer")
    invariants.check(untouched, status="succeeded", reason="completed")


# --- the stop and the good end ----------------------------------------------------------------------------------


def said(run: ARun, words: str) -> bool:
    return words.encode() in (run.folder / "outbox.jsonl").read_bytes()


MOMENTS: dict[str, Callable[[ARun], bool]] = {
    "with the gate": lambda run: True,
    "when the trainer says that it saves": lambda run: (
        b'"kind":"checkpoint"' in (run.folder / "metrics.jsonl").read_bytes()
    ),
    "when the trainer has exited": lambda run: said(run, '"process_exited"'),
    "when the supervisor ends it": lambda run: said(run, '"stopping"'),
    "when the end is written": lambda run: said(run, '"kind":"ended"'),
}


@pytest.mark.parametrize("mode", ["save", "now"])
def test_a_stop_and_the_good_end_at_the_same_instant(product: Product, mode: str) -> None:
    """Either may be first; everything that tells of it says the same."""
    runs = {moment: product.launch(CPU if index % 2 else on_gpus()) for index, moment in enumerate(MOMENTS)}
    with product.stack.client("operator") as client:

        def stop_at(moment: str, run: ARun) -> None:
            wait(lambda: MOMENTS[moment](run), run.why)
            ask_to_stop(client, run, mode)

        for moment, run in runs.items():
            run.until_step(1)
            at_once(lambda r=run: r.open_gate("trainer"), lambda m=moment, r=run: stop_at(m, r))
    for moment, run in runs.items():
        row = run.ended()
        assert (row["status"], row["reason"]) in {("succeeded", "completed"), ("stopped", "stopped_by_user")}, moment
        invariants.check(run, status=row["status"], reason=row["reason"])
        (told,) = [line["data"] for line in run.outbox() if line["kind"] == "ended"]
        assert (told["reason"], told["receipt"]) == (row["reason"], row["receipt"])
        assert events(run, "status")[-1]["reason"] == row["reason"]
        if row["reason"] == "completed":
            assert told["exit_codes"]["trainer"] == 0
        if moment == "when the end is written":
            assert row["reason"] == "completed"
