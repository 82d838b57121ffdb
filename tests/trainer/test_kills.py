"""A run that is killed at random steps and resumed by itself each time, against one that nothing happened to.

The trainer is real and dies by SIGKILL; its lines go through the store, which plans and queues each resume.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from random import Random

import pytest
from django.utils import timezone

from runs.engine import queries
from runs.engine.models import Attempt, Run
from runs.engine.scheduling import ending, recovery
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from runs.intake.host_api import ingest
from tests.runs.builders import FREE, a_host, a_run
from tests.trainer import builders
from tests.trainer.conftest import Start, Train
from workers.contract.reports.lines import OutboxLine, Receipt
from workers.contract.run.spec import RecoverySpec
from workers.contract.wire.documents import from_dict
from workers.contract.wire.names import EndReason, FileName

pytestmark = [
    pytest.mark.trainer,
    pytest.mark.processes,
    pytest.mark.django_db,
    pytest.mark.usefixtures("sent"),
]
KILLS = 5
SEED = 3
STEPS = 4 * KILLS + 4


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No message goes to a host."""
    from controlplane.catalogue.hardware import host_commands

    monkeypatch.setattr(host_commands, "send", lambda *_: None)


def test_a_run_killed_at_random_steps_ends_as_if_nothing_had_happened(
    tiny_model: Path, tmp_path: Path, start: Start, train: Train
) -> None:
    asked = {"model": tiny_model, "grpo": {"max_steps": STEPS, "save_steps": 2, "save_total_limit": 2}}
    run = a_run(host=a_host(), recovery=RecoverySpec(KILLS, 0))
    random = Random(SEED)
    for number in range(1, KILLS + 1):
        attempt, folder, resume_step = begun(run, number, tmp_path)
        process = start("-m", "workers.trainer", attempt_folder(attempt, folder, tmp_path, asked))
        last = min(resume_step + random.randint(1, 6), STEPS - 1)
        _until_step(folder, last, process)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        take_in(attempt, folder)
        ending.end(attempt, EndReason.SUPERVISOR_LOST, actor="test", receipt=from_dict(Receipt, FREE))
        recovery.resume_due(timezone.now())
    attempt, folder, _ = begun(run, KILLS + 1, tmp_path)
    assert train(attempt_folder(attempt, folder, tmp_path, asked)).returncode == 0
    take_in(attempt, folder)

    whole = builders.attempt_folder(tmp_path / "whole", **asked)
    assert train(whole).returncode == 0
    rows = [(step, values) for _, _, step, kind, values in queries.rows_after(run.pk, 0, 10_000) if "loss" in values]
    drawn = [(step, untimed(values)) for step, values in rows]
    assert [step for step, _ in drawn] == list(range(1, STEPS + 1))
    assert dict(drawn) == builders.logs(whole)


def begun(run: Run, number: int, root: Path) -> tuple[Attempt, Path, int]:
    """The queued attempt, as if it had been sent to its host; its folder, and the step that it goes on from."""
    attempt = run.attempts.get(number=number)
    run.refresh_from_db()
    facts = {"host": run.host, "first_seq": run.last_seq + 1, "last_seq": run.last_seq}
    assert move(attempt, RunStatus.STARTING, reason="test", actor="test", facts=facts)
    return attempt, root / run.pk / str(number), attempt.resume_step


def attempt_folder(attempt: Attempt, folder: Path, root: Path, asked: dict[str, object]) -> Path:
    resume_from = str(root / attempt.resume_from) if attempt.resume_from else None
    return builders.attempt_folder(folder, resume_from=resume_from, **asked)  # type: ignore[arg-type]


def take_in(attempt: Attempt, folder: Path) -> None:
    """What the supervisor or, after it, the reaper would send."""
    lines = [
        OutboxLine(seq=seq, t=line["t"], kind=line["kind"], step=line["step"], data=line["data"])
        for seq, line in enumerate(builders.lines(folder / FileName.METRICS), attempt.first_seq or 1)
    ]
    ingest.accept(attempt, lines)
    attempt.refresh_from_db()


def untimed(values: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if name != "step_time" and not name.startswith("time/")}


def _until_step(folder: Path, step: int, process: object) -> None:
    deadline = time.monotonic() + 120
    while max(builders.logs(folder), default=0) < step:
        assert process.poll() is None, process.communicate()[1][-2000:]  # type: ignore[attr-defined]
        assert time.monotonic() < deadline
        time.sleep(0.01)
