"""How an attempt ends, with real supervisors and a trainer that does as it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workers.supervisor.attempts import attempt
from workers.contract.wire.names import FileName
from workers.host.launcher import Launch

pytestmark = pytest.mark.processes


def test_a_run_is_claimed_trained_reported_and_proved_gone(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:5,samples:2") as made:
        assert made.launch() == Launch.STARTED
        ended = made.wait_for_end()
        assert ended["reason"] == "completed"
        assert ended["exit_codes"] == {"trainer": 0}
        assert ended["receipt"]["free"] is True
        assert made.control.phases() == ["claimed", "preparing", "trainer_starting", "stopping", "verifying"]
        assert made.control.train_steps() == [1, 2, 3, 4, 5]
    assert sorted(made.control.lines) == list(range(1, len(made.outbox()) + 1))
    assert [line["kind"] for line in made.outbox()][-1] == "ended"
    assert len(made.control.samples) == 10
    assert made.control.logs["trainer"].startswith(b"fake trainer of rtestrun22-1")
    assert made.control.logs["supervisor"] == made.folder.log("supervisor").read_bytes()
    assert (made.folder / "outbox.ack").read_text() == str(len(made.outbox()))


def test_a_checkpoint_that_is_missing_ends_the_attempt_before_anything_is_started(tmp_path: Path) -> None:
    with attempt(tmp_path, spec={"resume_from": "rtestrun22/9/checkpoints/checkpoint-2"}) as made:
        made.launch()
        ended = made.wait_for_end()
    assert (ended["reason"], ended["exit_codes"]) == ("checkpoint_unusable", {})
    assert ended["detail"] == "The checkpoint checkpoint-2 is not on this host."
    assert made.control.of_kind("process_started") == []


@pytest.mark.parametrize(
    ("trainer", "reason", "detail", "code", "cause"),
    [
        ("crash:1", "trainer_exited", "the reward function returned nothing", 1, "reward_error"),
        ("silent_exit", "trainer_exited", "without reporting the end of training", 0, ""),
        ("refuse", "spec_refused", "num_generations must be at least 2.", 3, "generations_too_few"),
        ("no_steps", "no_steps", "12 prompts are fewer than one generation batch of 16.", 4, "no_steps"),
        ("bad_reward", "reward_failed", "The reward judge failed on 8 of 8 completions.", 7, "reward_failed"),
        ("oom", "oom", "CUDA out of memory", 1, "gpu_memory"),
        ("sigkill", "trainer_exited", "was killed by SIGKILL", 137, "ended_by_kill"),
        ("steps:0", "no_steps", "step 0", 0, "no_steps"),
    ],
)
def test_the_reason_is_read_from_the_trainers_exit_and_the_cause_from_its_log(
    tmp_path: Path, trainer: str, reason: str, detail: str, code: int, cause: str
) -> None:
    with attempt(tmp_path, trainer=trainer) as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == reason
        assert detail in ended["detail"]
        assert ended["exit_codes"] == {"trainer": code}
        (diagnosed,) = [line["data"] for line in made.outbox() if line["kind"] == "diagnosed"]
        assert [one["id"] for one in diagnosed["diagnoses"]][:1] == [cause] * bool(cause)


def test_a_trainer_that_cannot_be_started_is_a_launch_that_failed(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer_command=("/nowhere/python",)) as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "launch_failed"
        assert "/nowhere/python could not be started" in ended["detail"]


def test_a_dataset_with_another_checksum_starts_nothing(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        made.control.dataset = b"something else\n"
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "launch_failed"
        assert "checksum" in ended["detail"]
        assert not (made.folder / FileName.DATASET).exists()
        assert not (made.folder / "environment.json").exists()


def test_lines_that_are_torn_invalid_or_huge_do_not_stop_the_tail(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:4,garbage,torn") as made:
        made.launch()
        assert made.wait_for_end()["reason"] == "completed"
        assert made.control.train_steps() == [1, 2, 3, 4]
        assert [line["data"] for line in made.control.of_kind("metrics_left_out")] == [{"names": "kl"}]
        notes = [note["data"]["text"] for note in made.control.of_kind("note")]
        assert notes == ["Dropped 3 of the trainer's lines because they could not be parsed."]


def test_the_figures_of_the_host_are_reported(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:10,pause:0.1") as made:
        made.launch()
        made.wait_for_end()
        figures = [line["data"] for line in made.control.of_kind("system")]
        assert set(figures[-1]) == {"host/cpu_percent", "host/memory_mib", "host/run_memory_mib"}
        assert max(sample.get("host/run_memory_mib", 0) for sample in figures) > 1  # 0 once the trainer is gone


def test_no_secret_reaches_a_child_that_does_not_need_it(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        made.control.secrets = {"HF_TOKEN": "hf_secret", "JUDGE_KEY": "judge_secret"}
        made.launch(REDIS_URL="redis://secret", SECRET_KEY="web-secret", HF_TOKEN="inherited", NCCL_DEBUG="INFO")
        made.wait_for_end()
        seen = made.trainer_environment()
        assert seen["NCCL_DEBUG"] == "INFO"
        assert seen["CUDA_VISIBLE_DEVICES"] == ""
        assert seen["JUDGE_KEY"] == "judge_secret"
        assert not {"REDIS_URL", "SECRET_KEY", "HF_TOKEN"} & set(seen)
        assert not any(name.startswith("GRPO_") for name in seen)
        assert "t0ken-that-must-not-leak" not in str(seen)
    assert made.control.unauthorized == 0
    everything = b"".join(p.read_bytes() for p in made.folder.path.rglob("*") if p.is_file() and "env" not in p.name)
    assert b"t0ken-that-must-not-leak" not in everything
    assert b"hf_secret" not in everything
    assert b"judge_secret" not in everything


def test_a_rewards_failures_are_told_before_the_end_that_they_lead_to(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:2,bad_reward") as made:
        made.launch()
        assert made.wait_for_end()["reason"] == "reward_failed"
        [told] = made.control.of_kind("reward_failed")
        assert (told["step"], told["data"]) == (
            2,
            {"reward": "judge", "row": 3, "kind": "http", "message": "It answered 503.", "count": 1, "of": 8},
        )
        assert [line["data"] for line in made.control.of_kind("trained")] == [{"how": "failed"}]
