"""An environment of Atropos, as its library runs it, feeds a training."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.fakes.running_vllm import RunningVllm
from tests.trainer import builders
from tests.trainer.preloaded import Preloaded
from tests.trainer.test_gateway import KEY, LORA, attempt, ended, stopped_at, training
from tests.waiting import wait_until
from tests.workers.supervisor.servers import free_port
from workers.contract.run import gateway
from workers.contract.run.hardware import Rollout, ServerSpec, WeightSync
from workers.contract.run.spec import LoraSpec

PYTHON = ROOT / gateway.ENVIRONMENT / "bin" / "python"
ENVIRONMENT = Path(__file__).with_name("atropos_environment.py")

pytestmark = [
    pytest.mark.trainer,
    pytest.mark.processes,
    pytest.mark.skipif(not PYTHON.exists(), reason=f"{gateway.ENVIRONMENT} (atroposlib) isn't built here"),
]
SETTINGS = {"kind": gateway.ATROPOS, "max_token_len": 128}


@contextmanager
def environment(folder: Path, model: Path, log: Path, *, group: int = 4) -> Iterator[None]:
    """Started as its author would; it registers once the trainer does."""
    own, api = builders.spec_of(folder).placement.ports[-2:]
    options = {
        "env.group_size": group,
        "env.rollout_server_url": f"http://127.0.0.1:{api}",
        "env.tokenizer_name": model,
        "env.use_wandb": False,
        "env.wandb_name": "counting",
        "env.max_token_length": 128,
        "openai.base_url": f"http://127.0.0.1:{own}/v1",
        "openai.api_key": KEY,
        "openai.model_name": model,
        "openai.server_type": "vllm",
    }
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "ATROPOS_ALLOW_DUMMY_MANAGED_SERVER": "1"}
    with log.open("w") as out:
        command = [str(PYTHON), str(ENVIRONMENT), "serve", *flags]
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out, cwd=log.parent)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def fed(folder: Path, model: Path, **options: Any) -> Path:
    return attempt(folder, model, ports=(*options.pop("ports", ()), free_port()), settings=SETTINGS, **options)


def trained(preloaded: Preloaded, folder: Path, model: Path) -> dict[int, dict[str, float]]:
    log = folder.parent / "environment.log"
    with training(preloaded, folder, port=-2) as (process, _), environment(folder, model, log):
        ended(process, log)
    return builders.logs(folder)


def test_an_environment_of_atropos_trains_a_model(preloaded: Preloaded, tiny_model: Path, tmp_path: Path) -> None:
    logs = trained(preloaded, fed(tmp_path / "attempt", tiny_model), tiny_model)
    assert sorted(logs) == [1, 2]
    assert logs[1]["rewards/agent/mean"] > 0
    assert (logs[1][gateway.STALENESS], logs[1][gateway.UNKNOWN]) == (0, 0)
    assert logs[2][gateway.STALENESS] in (0, 1)


def test_it_trains_on_what_a_server_sampled(preloaded: Preloaded, tiny_model: Path, tmp_path: Path) -> None:
    env = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "FAKE_VLLM_LIFETIME": "280", "FAKE_VLLM_ENGINE": "torch"}
    with RunningVllm(
        *LORA, preloaded=preloaded, model=str(tiny_model), name="r1-1", OMP_NUM_THREADS="1", **env
    ) as vllm:
        vllm.ready()
        server = ServerSpec(count=1, weight_sync=WeightSync.LORA, request_timeout_s=60)
        options = {"run": {"lora": LoraSpec(r=8, alpha=16)}, "hardware": {"rollout": Rollout.SERVER, "server": server}}
        logs = trained(preloaded, fed(tmp_path / "attempt", tiny_model, ports=(vllm.port,), **options), tiny_model)
    assert logs[1]["sampling/sampling_logp_difference/max"] < 1e-4
    assert logs[1][gateway.UNKNOWN] == 0


def test_a_stop_while_no_environment_sends_groups_saves_the_last_step(
    preloaded: Preloaded, tiny_model: Path, tmp_path: Path
) -> None:
    folder, log = fed(tmp_path / "attempt", tiny_model, grpo={"max_steps": 999}), tmp_path / "environment.log"
    with training(preloaded, folder, port=-2) as (process, _):
        with environment(folder, tiny_model, log):
            wait_until(lambda: builders.logs(folder))
        step = stopped_at(folder, process)
    assert step == max(builders.logs(folder))


def test_groups_of_another_size_end_the_run_in_words(preloaded: Preloaded, tiny_model: Path, tmp_path: Path) -> None:
    folder, log = fed(tmp_path / "attempt", tiny_model), tmp_path / "environment.log"
    with training(preloaded, folder, port=-2) as (process, _), environment(folder, tiny_model, log, group=2):
        _, err = process.communicate(timeout=200)
    assert process.returncode == 3, err[-2000:]
    assert "sends groups of 2, and the run has 4 completions" in err


def test_a_run_api_that_dies_ends_the_run_with_a_reason_of_its_own(
    preloaded: Preloaded, tiny_model: Path, tmp_path: Path
) -> None:
    folder = fed(tmp_path / "attempt", tiny_model)
    port = str(builders.spec_of(folder).placement.ports[-1])
    with training(preloaded, folder, port=-2) as (process, _):
        wait_until(lambda: run_apis(port))
        for each in run_apis(port):
            each.kill()
        _, err = process.communicate(timeout=100)
    assert process.returncode == 8, err[-2000:]
    assert "The Atropos API can't be reached" in err.strip().splitlines()[-1]


def run_apis(port: str) -> list[psutil.Process]:
    return [each for each in psutil.process_iter(["cmdline"]) if (each.info["cmdline"] or [""])[-1] == port]
