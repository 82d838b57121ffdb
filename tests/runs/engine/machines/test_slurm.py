"""The Slurm provider with programs in the place of Slurm's; tests/docker/test_slurm.py has a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs.engine.machines import slurm
from runs.engine.machines.provider import EngineError, MachinePhase, MachineShape
from runs.engine.machines.slurm import KIND, Slurm
from tests.runs.engine.machines.engine import Engine

SHAPE = MachineShape(gpus=2, cpus=16, minutes=60, idle_minutes=10, gpu_kind="h100")


def a_provider(engine: Engine, **options: str) -> Slurm:
    return Slurm("https://control.example", {"folder": str(engine.folder / "shared"), **options})


def test_the_code_is_in_a_file_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTROLPLANE_SECRET_KEY", "of the control plane")
    a_provider(engine).request(SHAPE, name="a-1", join="5ec2e7")
    code = engine.folder / "shared/a-1/code"
    assert (code.read_text(), code.stat().st_mode & 0o777, code.parent.stat().st_mode & 0o777) == (
        "5ec2e7",
        0o600,
        0o700,
    )
    seen = (engine.folder / "argv").read_text() + (engine.folder / "environment").read_text()
    assert "5ec2e7" not in seen
    assert "of the control plane" not in seen


def test_a_shape_becomes_options_and_what_the_host_is_told(engine: Engine) -> None:
    provider = a_provider(engine, partition="gpu", extra="--nice=5 --exclusive", environment="HF_HOME=/shared/hf")
    assert provider.request(SHAPE, name="a-1", join="5ec2e7") == "1"
    argv = (engine.folder / "argv").read_text().splitlines()
    assert {"--gres=gpu:h100:2", "--time=60", "--partition=gpu", "--nice=5", "--exclusive", "--no-requeue"} <= set(argv)
    told = (engine.folder / "environment").read_text().splitlines()
    assert {"GRPO_LEAVE_AFTER_S=600", "GRPO_CPU_SLOTS=8", "GRPO_AT_STOP=save", "HF_HOME=/shared/hf"} <= set(told)


def test_a_notice_of_its_own_is_what_slurm_gives(engine: Engine) -> None:
    a_provider(engine, environment="GRPO_STOP_NOTICE_S=890").request(SHAPE, name="a-1", join="5ec2e7")
    assert "--signal=B:TERM@900" in (engine.folder / "argv").read_text().splitlines()
    assert "GRPO_STOP_NOTICE_S=890" in (engine.folder / "environment").read_text().splitlines()


def test_asking_again_under_a_name_gives_the_same_job(engine: Engine) -> None:
    provider = a_provider(engine)
    assert [provider.request(SHAPE, name="a-1", join="5ec2e7") for _ in range(2)] == ["1", "1"]
    assert provider.request(SHAPE, name="a-2", join="5ec2e7") == "2"


@pytest.mark.parametrize(
    ("state", "phase", "taken_back"),
    [
        ("PENDING", MachinePhase.QUEUED, False),
        ("CONFIGURING", MachinePhase.STARTING, False),
        ("RUNNING", MachinePhase.RUNNING, False),
        ("COMPLETING", MachinePhase.RUNNING, False),
        ("COMPLETED", MachinePhase.ENDED, False),
        ("PREEMPTED", MachinePhase.ENDED, True),
        ("TIMEOUT", MachinePhase.ENDED, True),
        ("NODE_FAIL", MachinePhase.ENDED, False),
    ],
)
def test_a_jobs_state(engine: Engine, state: str, phase: MachinePhase, taken_back: bool) -> None:
    provider = a_provider(engine)
    job = provider.request(SHAPE, name="a-1", join="5ec2e7")
    engine.set(state)
    said = provider.state(job)
    assert (said.phase, said.taken_back) == (phase, taken_back)


def test_a_job_that_failed_says_its_last_words(engine: Engine) -> None:
    provider = a_provider(engine)
    job = provider.request(SHAPE, name="a-1", join="5ec2e7")
    (engine.folder / "shared/a-1/job.log").write_text("Joining …\npython3: not found\n\n")
    engine.set("FAILED")
    assert provider.state(job).sentence.endswith("Last line of its log: python3: not found")


def test_a_job_that_slurm_has_forgotten_has_ended(engine: Engine) -> None:
    assert a_provider(engine).state("7").phase == MachinePhase.ENDED


def test_a_waiting_job_is_cancelled_and_a_running_one_is_told(engine: Engine) -> None:
    provider = a_provider(engine)
    for state in ("PENDING", "RUNNING"):
        provider.request(SHAPE, name=state, join="5ec2e7")
    engine.set("RUNNING", job="2")
    for job in ("1", "2", "1", "9"):
        provider.release(job)
    assert engine.cancelled.splitlines() == ["1", "--batch --signal=TERM 2"]


def test_a_refusal_is_told_in_slurms_words(engine: Engine) -> None:
    engine.refuse("sbatch: error: Batch job submission failed: Invalid account")
    with pytest.raises(EngineError, match=r"sbatch failed: sbatch: error: .* Invalid account"):
        a_provider(engine).request(SHAPE, name="a-1", join="5ec2e7")


def test_an_engine_that_is_not_there_hangs_or_cannot_write_is_told(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(slurm, "TIMEOUT_S", 0.2)
    engine.program("squeue", "exec tail -f /dev/null\n")
    with pytest.raises(EngineError, match="didn't respond"):
        a_provider(engine).state("1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="squeue is not installed"):
        a_provider(engine).state("1")
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="can't write to"):
        a_provider(engine, folder=str(tmp_path / "file")).request(SHAPE, name="a-1", join="5ec2e7")


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("folder", "relative/path"),
        ("folder", "/shared/../etc"),
        ("partition", "--wrap=id"),
        ("partition", "gpu; rm -rf"),
        ("account", "a\nb"),
        ("extra", "--wrap=id"),
        ("extra", "--export=ALL"),
        ("extra", "--nodelist=$(id)"),
        ("extra", "script.sh"),
        ("environment", "LD_PRELOAD=/tmp/x.so"),
        ("environment", "GRPO_A=1 not-a-pair"),
        ("environment", "GRPO_STOP_NOTICE_S=two minutes"),
        ("environment", "GRPO_STOP_NOTICE_S=-5"),
        ("plaintext", "maybe"),
        ("unknown", "x"),
    ],
)
def test_a_setting_that_is_no_such_thing_is_named(option: str, text: str) -> None:
    assert list(KIND.problems({"folder": "/shared", option: text})) == [option]


def test_settings_as_people_write_them() -> None:
    options = {"folder": "/shared/grpo", "partition": "gpu-a,gpu_b", "constraint": "(h100|h200)&nvlink"}
    options |= {
        "gres": "gpu:h100:4",
        "extra": "--exclude=gpu[01-04] --nice=100",
        "environment": "HF_HOME=/hf GRPO_X=a=b",
    }
    assert KIND.problems(options) == {}
    assert KIND.problems({}) == {"folder": "Shared folder is required."}
