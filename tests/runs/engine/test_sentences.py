"""What a run's header says to people while it starts."""

from __future__ import annotations

import pytest

from runs.engine import queries, sentences
from runs.engine.models import Run
from runs.engine.records import RunEvent
from runs.engine.states import RunStatus
from runs.intake.host_api import ingest
from tests.runs.builders import an_attempt, event
from workers.contract.reports.lines import OutboxLine

pytestmark = pytest.mark.django_db


def header_after(*lines: OutboxLine) -> str:
    ingest.accept(an_attempt(RunStatus.STARTING), list(lines))
    return str(queries.summary(queries.with_attempts(Run.objects.all()).get())["sentence"])


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ({}, "Downloading the model."),
        ({"download/done_mib": 1144.4}, "Downloading the model, 1.2 GB so far."),
        ({"download/done_mib": 1144.4, "download/total_mib": 2956.4}, "Downloading the model, 1.2 of 3.1 GB."),
        ({"download/done_mib": 0.0, "download/total_mib": 95.4}, "Downloading the model, 0.0 of 0.10 GB."),
    ],
)
def test_a_download_says_how_far_it_has_come(figures: dict[str, float], says: str) -> None:
    phase = event(1, "phase", phase="fetching_model", detail="fetching some/model")
    assert header_after(phase, OutboxLine(2, 2.0, "system", None, figures)) == says


@pytest.mark.parametrize(
    ("detail", "says"),
    [
        ("", "Stopping every process of the run."),
        ("saving", "Stopping every process of the run. Saving"),
        ("completed 12 steps.", "Stopping every process of the run. Finished all steps. 12 steps."),
        (
            "reward_failed The reward own failed on 4 of 4.",
            "Stopping every process of the run. A reward failed on more rows than the run allows. "
            "The reward own failed on 4 of 4.",
        ),
    ],
)
def test_the_reason_of_an_end_is_told_in_words(detail: str, says: str) -> None:
    assert sentences.of_event(RunEvent(kind="phase", data={"phase": "stopping", "detail": detail})) == says


@pytest.mark.parametrize(
    ("size", "says"), [(3_100_000_000, "2.89\N{NO-BREAK SPACE}GiB"), (52_428_800, "50\N{NO-BREAK SPACE}MiB")]
)
def test_a_checkpoint_says_its_size_as_people_do(size: int, says: str) -> None:
    saved = RunEvent(kind="checkpoint", data={"step": 100, "path": "checkpoint-100", "bytes": size})
    assert sentences.of_event(saved) == f"Saved a checkpoint at step 100 ({says})."


def test_a_second_server_is_named_as_such() -> None:
    started = RunEvent(kind="process_started", data={"role": "vllm-2", "pid": 7})
    assert sentences.of_event(started) == "Started the vLLM 2 process (pid 7)."


@pytest.mark.parametrize(
    ("kind", "data", "says"),
    [
        ("trained", {"how": "completed"}, "The trainer reached its last step."),
        ("trained", {"how": "stopped"}, "The trainer stopped early, as asked."),
        (
            "trained",
            {"how": "failed"},
            "The trainer saved and stopped early, because a reward failed on too many rows.",
        ),
        ("trained", {"how": "unheard of"}, "Training ended."),
        (
            "metrics_left_out",
            {"names": "grad_norm, kl"},
            "Omitted these metrics, because they are not finite or their names are too long: grad_norm, kl.",
        ),
        ("diagnosed", {"diagnoses": [{"id": "disk_full"}]}, "Likely cause: The disk is full."),
        ("diagnosed", {"diagnoses": [{"id": "of a newer version"}]}, "Likely cause: of a newer version."),
        ("diagnosed", {"diagnoses": []}, "The logs show no known cause."),
        (
            "diagnosed",
            {"diagnoses": [{"id": "disk_full"}], "first_errors": [["trainer.log", 7, "ZorgError: 7"]]},
            "Likely cause: The disk is full. First error: trainer.log:7: ZorgError: 7",
        ),
        ("not_launched", {"detail": "no space left"}, "The host didn't start a supervisor. No space left"),
        (
            "not_launched",
            {"detail": "torch.OutOfMemoryError: x"},
            "The host didn't start a supervisor. torch.OutOfMemoryError: x",
        ),
    ],
)
def test_what_the_trainer_says_of_itself_is_a_sentence(kind: str, data: dict[str, str], says: str) -> None:
    assert sentences.of_event(RunEvent(kind=kind, data=data)) == says


@pytest.mark.parametrize(
    ("row", "count", "says"),
    [
        (3, 1, "The reward judge failed on row 3 (for the first time): It answered 503."),
        (3, 10, "The reward judge failed on row 3 (now 10 of 64 completions): It answered 503."),
        (None, 1, "The reward judge failed on a batch (for the first time): It answered 503."),
    ],
)
def test_a_reward_that_failed_is_told_with_its_row_and_how_often(row: int | None, count: int, says: str) -> None:
    told = {"reward": "judge", "kind": "http", "message": "It answered 503.", "row": row, "count": count, "of": 64}
    attempt = an_attempt(RunStatus.RUNNING)
    ingest.accept(attempt, [OutboxLine(1, 1.0, "reward_failed", 4, told)])
    stored = RunEvent.objects.get(kind="reward_failed")
    assert (stored.step, sentences.of_event(stored)) == (4, says)
