"""Real TRL trains on completions of a server that is given the policy as a LoRA adapter, version by version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.running_vllm import RunningVllm
from tests.trainer import builders
from tests.trainer.conftest import Start
from tests.trainer.preloaded import Preloaded
from tests.waiting import wait_until
from workers.contract.reports.metric_names import LOGP_GAP, POLICY_CHANGE, VLLM_CHANGED, VLLM_FOLLOWED
from workers.contract.run.hardware import Rollout, ServerSpec, WeightSync
from workers.contract.run.spec import LoraSpec, RewardSpec
from workers.contract.stack.commands import AWAIT_SERVERS
from workers.contract.wire.names import FileName

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

ATTEMPT = "r1-1"
LORA = ("--enable-lora", "--max-lora-rank", "8", "--max-loras", "3", "--logprobs-mode", "processed_logprobs")
REWARDS = (RewardSpec("variety", "unique_chars"),)
"""Tells any two completions apart, so that every step moves the policy, however little the model can do."""
ALLOWED = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "FAKE_VLLM_LIFETIME": "280"}


SECOND = f"{ATTEMPT}-vllm-2"
AGREE = 1e-4
"""Two log-probabilities of a token under the same weights differ by less."""
LEFT = (10 * AGREE) ** 2 / 2
"""The KL (about half the mean square of the difference in log-probability) from which an adapter that the server should
not hold any more would make them disagree by ten times that."""


def sampling(preloaded: Preloaded, model: Path, name: str = ATTEMPT, **faults: str) -> RunningVllm:
    """A server that really samples from the model and its adapters."""
    env = {**ALLOWED, "FAKE_VLLM_ENGINE": "torch", "OMP_NUM_THREADS": "1", **faults}
    return RunningVllm(*LORA, preloaded=preloaded, model=str(model), name=name, **env)


@pytest.fixture
def sampling_server(preloaded: Preloaded, tiny_model: Path) -> Iterator[RunningVllm]:
    with sampling(preloaded, tiny_model) as server:
        yield server


@pytest.fixture
def canned_server() -> Iterator[RunningVllm]:
    with RunningVllm(*LORA, name=ATTEMPT, **ALLOWED) as server:
        yield server.ready()


def attempt(
    folder: Path, model: Path, *servers: RunningVllm, profile: dict[str, Any] | None = None, **grpo: Any
) -> Path:
    server = ServerSpec(count=len(servers), weight_sync=WeightSync.LORA, request_timeout_s=60)
    hardware = {"rollout": Rollout.SERVER, "server": server, **(profile or {})}
    settings = {"num_iterations": 2, "learning_rate": 1e-2, **grpo}
    run = {"lora": LoraSpec(r=8, alpha=16)}
    placement = {"ports": [server.port for server in servers]}
    return builders.attempt_folder(
        folder, model=model, grpo=settings, hardware=hardware, placement=placement, rewards=REWARDS, run=run
    )


def test_the_server_samples_from_the_policy_as_it_is_trained(
    start: Start, tiny_model: Path, sampling_server: RunningVllm, tmp_path: Path
) -> None:
    sampling_server.ready()
    folder = attempt(tmp_path / "attempt", tiny_model, sampling_server, max_steps=6)
    trainer = start("-m", "workers.trainer", folder)
    _, stderr = trainer.communicate()
    assert trainer.returncode == 0, stderr

    logs = builders.logs(folder)
    fresh = [logs[step] for step in (1, 3, 5)]
    for log in fresh:
        assert log["mean_ratio"] == pytest.approx(1.0, abs=1e-4)
        assert log["sampling/importance_sampling_ratio/mean"] == pytest.approx(1.0, abs=1e-3)
        assert log["sampling/sampling_logp_difference/max"] < AGREE
        assert log["sampling/share_masked"] == 0
    # The policy has left the base model and moves within a batch: with an older adapter the two would disagree.
    assert fresh[-1]["kl"] > LEFT
    assert any(abs(logs[step]["mean_ratio"] - 1) > 1e-5 for step in (2, 4, 6))

    assert logs[1][POLICY_CHANGE] == 0
    for log in fresh[1:]:
        assert log[POLICY_CHANGE] > AGREE
        assert log[VLLM_FOLLOWED] == pytest.approx(1.0, abs=0.02)
    assert all(log[LOGP_GAP] < AGREE for log in fresh)

    used = re.findall(r"Generated \d+ sequences with model '(.+)'", sampling_server.log())
    assert used == ["policy-v1", "policy-v2", "policy-v3"]
    assert sampling_server.models() == [ATTEMPT, "policy-v3"]
    assert [path.name for path in (folder / "adapters").iterdir()] == ["policy-v3"]
    assert len(builders.lines(folder / FileName.SAMPLES)) == 6
    steps = [line for line in builders.lines(folder / FileName.METRICS) if "loss" in line["data"]]
    assert [line["step"] for line in steps if line["data"].get("time/weight_sync_s", 0) > 0] == [1, 3, 5]


def test_a_server_that_keeps_the_base_model_is_seen_at_the_second_batch(
    start: Start, preloaded: Preloaded, tiny_model: Path, tmp_path: Path
) -> None:
    with sampling(preloaded, tiny_model, FAKE_VLLM="ignores_adapters") as server:
        folder = attempt(tmp_path / "attempt", tiny_model, server.ready(), max_steps=3)
        trainer = start("-m", "workers.trainer", folder)
        _, stderr = trainer.communicate()
    assert trainer.returncode == 0, stderr
    log = builders.logs(folder)[3]
    assert log[POLICY_CHANGE] > AGREE
    assert log[VLLM_FOLLOWED] == log[VLLM_CHANGED] == 0


def test_two_servers_sample_their_own_groups_from_the_same_policy(
    start: Start, preloaded: Preloaded, tiny_model: Path, sampling_server: RunningVllm, tmp_path: Path
) -> None:
    with sampling(preloaded, tiny_model, name=SECOND) as second:
        servers = [server.ready() for server in (sampling_server, second)]
        grpo = {"per_device_train_batch_size": 12, "max_steps": 4, "save_strategy": "no"}  # three groups of four
        folder = attempt(tmp_path / "attempt", tiny_model, *servers, **grpo)
        trainer = start("-m", "workers.trainer", folder)
        _, stderr = trainer.communicate()
        assert trainer.returncode == 0, stderr
        made = [re.findall(r"Generated (\d+) sequences with model '(.+)'", server.log()) for server in servers]
        held = [server.models() for server in servers]
    assert made == [[("8", "policy-v1"), ("8", "policy-v2")], [("4", "policy-v1"), ("4", "policy-v2")]]
    assert held == [[ATTEMPT, "policy-v2"], [SECOND, "policy-v2"]]
    assert_sampled_from_the_policy(builders.logs(folder), fresh=(1, 3))


def assert_sampled_from_the_policy(logs: dict[int, dict[str, float]], *, fresh: tuple[int, ...]) -> None:
    """With an older adapter, or another's completions, the two log probabilities would disagree."""
    assert all(logs[step]["sampling/sampling_logp_difference/max"] < AGREE for step in fresh)
    assert logs[fresh[-1]]["kl"] > LEFT


def test_one_of_two_servers_dying_in_mid_request_ends_the_trainer_with_its_name(
    start: Start, tiny_model: Path, canned_server: RunningVllm, tmp_path: Path
) -> None:
    with RunningVllm(*LORA, name=SECOND, **ALLOWED, FAKE_VLLM="health_but_hangs") as second:
        folder = attempt(tmp_path / "attempt", tiny_model, canned_server, second.ready(), max_steps=4)
        trainer = start("-m", "workers.trainer", folder)
        wait_until(lambda: "policy-v1" in second.models() or trainer.poll() is not None, second.log)
        wait_until(lambda: "Generated 4 sequences" in canned_server.log(), canned_server.log)
        second.front.kill()
        _, stderr = trainer.communicate(timeout=60)
    assert trainer.returncode == 5, stderr
    assert f"The vLLM server vllm-2 at 127.0.0.1:{second.port} is gone" in stderr.splitlines()[-1]


def test_a_server_that_dies_ends_the_trainer_with_a_sentence(
    start: Start, tiny_model: Path, canned_server: RunningVllm, tmp_path: Path
) -> None:
    folder = attempt(tmp_path / "attempt", tiny_model, canned_server, max_steps=100_000, save_strategy="no")
    trainer = start("-m", "workers.trainer", folder)
    wait_until(lambda: builders.logs(folder) or trainer.poll() is not None, canned_server.log)
    canned_server.children[0].kill()
    _, stderr = trainer.communicate(timeout=60)
    assert trainer.returncode == 5, stderr
    assert re.match(r"The vLLM server at 127\.0\.0\.1:\d+ is gone: /v1/\w+ failed\. ", stderr.splitlines()[-1])


def test_somebody_elses_server_serves_a_run_and_is_left_as_it_was(
    start: Start, tiny_model: Path, canned_server: RunningVllm, tmp_path: Path
) -> None:
    attached = ServerSpec(attached=(canned_server.url,), weight_sync=WeightSync.LORA)
    grpo = {"max_steps": 1, "max_completion_length": 12, "save_strategy": "no"}
    folder = attempt(tmp_path / "attempt", tiny_model, profile={"server": attached}, **grpo)
    trainer = start("-m", "workers.trainer", folder)
    _, stderr = trainer.communicate()
    assert trainer.returncode == 0, stderr
    assert "Generated 8 sequences with model 'r1-1-v1'" in canned_server.log()
    assert canned_server.models() == [ATTEMPT]


def test_a_run_without_lora_is_refused_before_torch(start: Start, tiny_model: Path, tmp_path: Path) -> None:
    hardware = {"rollout": Rollout.SERVER, "server": ServerSpec(weight_sync=WeightSync.LORA)}
    folder = builders.attempt_folder(tmp_path, model=tiny_model, hardware=hardware, placement={"ports": [1]})
    trainer = start("-m", "workers.trainer", folder)
    _, stderr = trainer.communicate()
    assert trainer.returncode == 3
    assert "The hot-swap sends a LoRA adapter to vLLM, but all weights are trained. Train a LoRA" in stderr


def test_weights_over_nccl_are_refused_where_vllm_is_not_installed(
    start: Start, tiny_model: Path, tmp_path: Path
) -> None:
    if start("-c", "import vllm").wait() == 0:
        pytest.skip("vllm is installed beside the trainer")
    server = ServerSpec(gpus=1, weight_sync=WeightSync.NCCL)
    hardware = {"rollout": Rollout.SERVER, "trainer_gpus": 1, "server": server}
    folder = builders.attempt_folder(tmp_path, model=tiny_model, hardware=hardware, placement={"ports": [1]})
    trainer = start("-m", "workers.trainer", folder)
    _, stderr = trainer.communicate()
    assert trainer.returncode == 3
    assert "needs vllm, but it is not installed" in stderr


def told(folder: Path) -> list[str]:
    """The stages that the trainer has named so far."""
    file = folder / FileName.METRICS
    return [line["data"]["stage"] for line in builders.lines(file) if line["kind"] == "stage"] if file.exists() else []


def test_a_trainer_beside_its_server_loads_the_model_before_it_waits(
    preloaded: Preloaded, tiny_model: Path, canned_server: RunningVllm, tmp_path: Path
) -> None:
    folder = attempt(tmp_path / "attempt", tiny_model, canned_server, max_steps=1, save_strategy="no")
    trainer = preloaded.start("-m", "workers.trainer", folder, env={AWAIT_SERVERS: "1", "OMP_NUM_THREADS": "1"})
    try:
        wait_until(lambda: "waiting for vLLM" in told(folder))
        assert "Generated" not in canned_server.log()
        (folder / FileName.SERVERS_READY).touch()
        _, stderr = trainer.communicate()
        assert trainer.returncode == 0, stderr
    finally:
        trainer.kill()
    assert told(folder)[-3:] == ["loading model", "waiting for vLLM", "starting the first step"]


def test_two_ranks_share_one_request_and_each_gets_its_own_completions(
    start: Start, tiny_model: Path, canned_server: RunningVllm, tmp_path: Path
) -> None:
    grpo = {"max_steps": 1, "per_device_train_batch_size": 4, "max_completion_length": 12, "save_strategy": "no"}
    folder = attempt(
        tmp_path / "attempt", tiny_model, canned_server, profile={"processes": 2, "strategy": "ddp"}, **grpo
    )
    trainer = start("-m", "workers.trainer", folder)
    _, stderr = trainer.communicate()
    assert trainer.returncode == 0, stderr
    assert canned_server.log().count("Generated 8 sequences with model 'policy-v1'") == 1
    groups = builders.lines(folder / FileName.SAMPLES)
    assert len(groups) == 2
    for group in groups:  # the server repeats each prompt's own tokens
        assert [c["text"] for c in group["completions"]] == [(group["prompt"] * 2)[:12]] * 4
