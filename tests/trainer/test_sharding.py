"""Two ranks that share the model out: ZeRO and FSDP2 train as plain ranks do, save whole models and resume.

DeepSpeed and bitsandbytes are optional packages of the trainer's interpreter; without them their tests are skipped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import builders
from tests.trainer.conftest import Start
from tests.trainer.preloaded import Preloaded
from tests.trainer.test_lora_swap import assert_sampled_from_the_policy, attempt, sampling
from workers.contract.run.hardware import Offload, Optimizer, Quantization, Strategy
from workers.contract.run.spec import LoraSpec
from workers.supervisor.inputs import checkpoints

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

GRPO = {"per_device_train_batch_size": 4, "max_steps": 3, "save_steps": 2}
TENSORS = """
import json, sys
from safetensors import safe_open
with safe_open(sys.argv[1], "pt") as file:
    print(json.dumps({name: list(file.get_slice(name).get_shape()) for name in file.keys()}))
"""


@pytest.fixture
def deepspeed(preloaded: Preloaded) -> None:
    _needs(preloaded, "deepspeed")
    _needs(preloaded, "ninja")


@pytest.fixture
def bitsandbytes(preloaded: Preloaded) -> None:
    _needs(preloaded, "bitsandbytes")


def _needs(preloaded: Preloaded, package: str) -> None:
    if not preloaded.has(package):
        pytest.skip(f"{package} is not installed in the trainer's interpreter ({preloaded.python})")


def run(start: Start, folder: Path, strategy: Strategy) -> dict[int, dict[str, float]]:
    command: tuple[object, ...] = ("-m", "workers.trainer", folder)
    if strategy is Strategy.FSDP2:
        launcher = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d")
        command = (*launcher, "--rdzv-endpoint=127.0.0.1:0", "-m", "tests.trainer.fsdp_on_cpu", folder)
    process = start(*command)
    _, stderr = process.communicate()
    assert process.returncode == 0, stderr[-3000:]
    return builders.logs(folder)


def shapes(preloaded: Preloaded, file: Path) -> dict[str, list[int]]:
    done = preloaded.run("-c", TENSORS, file)
    found: dict[str, list[int]] = json.loads(done.stdout.splitlines()[-1])
    return found


def profile(strategy: Strategy, **more: Any) -> dict[str, Any]:
    return {"processes": 2, "strategy": strategy, "gradient_checkpointing": True, **more}


SHARDED = [Strategy.ZERO2, Strategy.ZERO3, Strategy.FSDP2]


@pytest.fixture(params=SHARDED)
def strategy(request: pytest.FixtureRequest) -> Strategy:
    if request.param is not Strategy.FSDP2:
        request.getfixturevalue("deepspeed")
    strategy: Strategy = request.param
    return strategy


@pytest.fixture(scope="module")
def plain(preloaded: Preloaded, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    """What two ranks log that each hold the whole model."""
    folder = builders.attempt_folder(
        tmp_path_factory.mktemp("plain") / "a", model=tiny_model, grpo=GRPO, hardware=profile(Strategy.DDP)
    )
    preloaded.run("-m", "workers.trainer", folder)
    return builders.logs(folder)


def test_sharded_ranks_learn_as_plain_ones_and_save_a_whole_model_that_resumes(
    start: Start, preloaded: Preloaded, tiny_model: Path, tmp_path: Path, strategy: Strategy, plain: dict[int, Any]
) -> None:
    asked = {"model": tiny_model, "hardware": profile(strategy), "grpo": GRPO}
    folder = builders.attempt_folder(tmp_path / "a", **asked)
    logged = run(start, folder, strategy)
    for step, values in plain.items():
        assert logged[step]["reward"] == values["reward"]
        assert logged[step]["loss"] == pytest.approx(values["loss"], abs=1e-4)

    saved = shapes(preloaded, folder / "checkpoints/checkpoint-3/model.safetensors")
    assert saved == shapes(preloaded, tiny_model / "model.safetensors")

    checkpoint = str(folder / "checkpoints/checkpoint-2")
    checkpoints.check(Path(checkpoint), builders.spec_of(folder).run)
    rest = builders.attempt_folder(tmp_path / "b", **asked, resume_from=checkpoint)
    resumed = run(start, rest, strategy)
    assert list(resumed) == [3]
    assert resumed[3]["loss"] == pytest.approx(logged[3]["loss"], abs=1e-5)


@pytest.mark.parametrize("strategy", [Strategy.FSDP2, Strategy.ZERO3], indirect=True)
def test_the_server_gets_the_whole_adapter_of_sharded_ranks(
    start: Start, preloaded: Preloaded, tiny_model: Path, tmp_path: Path, strategy: Strategy
) -> None:
    with sampling(preloaded, tiny_model) as server:
        server.ready()
        folder = attempt(tmp_path / "a", tiny_model, server, profile=profile(strategy), **GRPO)
        assert_sampled_from_the_policy(run(start, folder, strategy), fresh=(1, 3))
    adapters: list[Path] = [*(folder / "adapters").glob("*/adapter_model.safetensors")]
    assert len(adapters) == 1
    saved = shapes(preloaded, folder / "checkpoints/checkpoint-3/adapter_model.safetensors")
    assert saved
    assert saved == shapes(preloaded, adapters[0])


@pytest.mark.usefixtures("deepspeed")
def test_one_process_trains_with_an_offloaded_optimizer(start: Start, tiny_model: Path, tmp_path: Path) -> None:
    hardware = {"strategy": Strategy.ZERO2, "offload": Offload.OPTIMIZER}
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, hardware=hardware, grpo={"max_steps": 2})
    assert list(run(start, folder, Strategy.ZERO2)) == [1, 2]


@pytest.mark.usefixtures("bitsandbytes")
@pytest.mark.parametrize("bits", [Quantization.NF4, Quantization.INT8])
def test_a_lora_is_trained_on_a_quantized_model(
    start: Start, preloaded: Preloaded, tiny_model: Path, tmp_path: Path, bits: Quantization
) -> None:
    hardware = {"quantization": bits, "optimizer": Optimizer.ADAMW_8BIT}
    asked = {"model": tiny_model, "hardware": hardware, "grpo": {"max_steps": 2}, "run": {"lora": LoraSpec(r=8)}}
    folder = builders.attempt_folder(tmp_path / "a", **asked)
    assert list(run(start, folder, Strategy.NONE)) == [1, 2]
    assert shapes(preloaded, folder / "checkpoints/checkpoint-2/adapter_model.safetensors")
    checkpoints.check(folder / "checkpoints/checkpoint-2", builders.spec_of(folder).run)
