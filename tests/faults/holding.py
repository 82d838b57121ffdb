"""How a run is brought into each state of the matrix and held there by a gate, and how it is let go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.faults.harness import CPU, ARun, Product, on_gpus, with_server
from tests.faults.matrix import STATES

SOMEBODY_MIB = 5_000

WAITING = """
import base64, json
from controlplane.celery import app
with app.connection_for_write() as connection:
    messages = connection.default_channel.client.lrange("host.testhost", 0, -1)
bodies = [base64.b64decode(json.loads(message)["body"]).decode() for message in messages]
result = [run for run in runs if any(run in body for body in bodies)]
"""


@dataclass(frozen=True)
class Hold:
    """What a run is launched as, how it gets into its state, and what lets it go on."""

    launch: dict[str, Any]
    reach: Callable[[ARun], object]
    release: Callable[[ARun], object]


def _open(gate: str) -> Callable[[ARun], object]:
    return lambda run: run.open_gate(gate)


def _reach_phase(phase: str) -> Callable[[ARun], object]:
    return lambda run: run.until(lambda seen: seen["phase"] == phase)


def _reach_loading(run: ARun) -> None:
    """Far enough that the engine has its memory."""
    gpu = run.until(lambda seen: seen["phase"] == "vllm_starting")["placement"]["server_gpus"][0]
    run.product.until(lambda: run.product.gpus.used()[gpu] > SOMEBODY_MIB, run.why)


def _reach_training(run: ARun) -> None:
    run.until_status("running")
    run.until_step(3)


def _reach_saving(run: ARun) -> None:
    _reach_training(run)
    run.stop("save")
    run.until(lambda seen: seen["phase"] == "stopping" and seen["phase_detail"].startswith("the trainer saves"))


def _reach_stopping(run: ARun) -> None:
    _reach_training(run)
    run.stop("now")
    run.until(lambda seen: seen["phase"] == "stopping" and seen["phase_detail"].startswith("stopped_by_user"))


def _reach_verifying(run: ARun) -> None:
    _reach_training(run)
    run.product.gpus.others(_gpu(run), SOMEBODY_MIB)
    run.open_gate("trainer")
    run.until(lambda seen: seen["phase"] == "verifying")


def _gpu(run: ARun) -> int:
    return int(run.look()["placement"]["gpus"][0])


SERVER = with_server(ready_timeout_s=3600)  # `loading` is held, and ends by nothing but its gate
HOLDS = {
    "starting": Hold(
        {"hardware": SERVER, "trainer": "steps:20", "supervisor": "gate"},
        _reach_phase("preparing"),
        _open("supervisor"),
    ),
    "loading": Hold({"hardware": SERVER, "trainer": "steps:20", "vllm": "gate"}, _reach_loading, _open("vllm")),
    "training": Hold({"hardware": SERVER}, _reach_training, _open("trainer")),
    "saving": Hold({"hardware": SERVER, "trainer": "gate,gate_save"}, _reach_saving, _open("save")),
    "stopping": Hold(
        {"hardware": SERVER, "trainer": "gate,gate_term", "vllm": "gate_term"}, _reach_stopping, _open("term")
    ),
    "verifying": Hold({"hardware": on_gpus()}, _reach_verifying, lambda run: run.product.gpus.others(_gpu(run), 0)),
}
"""`queued` and `sent` are no gates of their own: see `Held`."""


@dataclass
class Held:
    """Runs of one product, each in its state."""

    product: Product
    runs: dict[str, ARun] = field(default_factory=dict)
    also: list[ARun] = field(default_factory=list)
    """Runs that are there for the sake of others."""

    def bring(self, *names: str) -> dict[str, ARun]:
        """One run into each of these states, at the same time."""
        runs = {name: self.product.launch(**HOLDS[_state(name)].launch) for name in names}
        self.runs |= runs
        for name, run in runs.items():
            HOLDS[_state(name)].reach(run)
            run.until_process(*STATES[_state(name)].alive)
            assert set(run.processes()) == STATES[_state(name)].alive, run.why(run.processes())
        return runs

    def queue(self, behind: ARun) -> None:
        """A run for the very GPU that another one has."""
        run = self.product.launch(on_gpus() | {"trainer_gpu_ids": [_gpu(behind)]}, trainer="steps:20")
        run.until(lambda seen: seen["status"] == "queued" and seen["waits_for"])
        assert not run.living()
        self.runs["queued"] = run

    @contextmanager
    def nobody_takes_launches(self) -> Iterator[None]:
        """The host's worker is stopped, as SIGSTOP stops; it goes on afterwards, if it is still that one."""
        pid = self.product.fleet.pids()["host"]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            if self.product.fleet.pids()["host"] == pid:
                os.kill(pid, signal.SIGCONT)

    def send(self) -> None:
        """A run whose launch message lies in Redis, of two: a read that had begun takes the first message at once. The
        tick may be the one who sends them, in its own time."""
        two = {run.run: run for run in (self.product.launch(CPU, trainer="steps:20", just_heard=True) for _ in "12")}
        waiting: list[str] = []

        def one_waits() -> bool:
            waiting[:] = self.product.stack.django(WAITING, runs=list(two))
            return bool(waiting)

        self.product.until(one_waits, lambda: "\n".join(run.why() for run in two.values()))
        self.runs["sent"] = two.pop(waiting[0])
        self.also += two.values()
        assert self.runs["sent"].look()["status"] == "starting"
        assert not self.runs["sent"].living()

    def release(self, *names: str) -> None:
        for name in names:
            HOLDS[_state(name)].release(self.runs[name])


def _state(name: str) -> str:
    """Runs may be called after the fault that is to strike them as well: `trainer-saving`."""
    return name.rpartition("-")[2]
