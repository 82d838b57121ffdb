"""A DeepSpeed config that a profile keeps: what it may say, and what a launch makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from workers.contract.run.hardware import ZERO, HardwareSpec, Offload, Precision, Strategy
from workers.contract.stack.deepspeed import config_of, deepspeed_problems, number_problems, usual_config
from workers.contract.stack.hardware_rules import hardware_problems

ZERO2 = HardwareSpec("p", trainer_gpus=2, processes=2, strategy=Strategy.ZERO2, offload=Offload.OPTIMIZER)
TUNED: dict[str, Any] = {
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "reduce_bucket_size": 5e7},
    "activation_checkpointing": {"partition_activations": True, "cpu_checkpointing": True},
    "wall_clock_breakdown": True,
    "fp16": {"loss_scale": 0},
}


def keeping(config: dict[str, Any], **more: Any) -> HardwareSpec:
    return replace(ZERO2, deepspeed=config, **more)


def test_a_tuned_config_is_used_as_it_is_with_auto_for_what_the_run_decides():
    config = config_of(keeping(TUNED))
    tuned = {name: value for name, value in TUNED.items() if name != "fp16"}
    assert tuned.items() <= config.items()
    assert config["fp16"] == {"loss_scale": 0, "enabled": "auto"}
    assert config["bf16"] == {"enabled": "auto"}
    assert config["train_batch_size"] == config["train_micro_batch_size_per_gpu"] == "auto"
    assert config["optimizer"] == usual_config(ZERO2)["optimizer"]
    assert list(deepspeed_problems(keeping(TUNED))) == []
    assert TUNED["fp16"] == {"loss_scale": 0}  # the profile's own copy stays


@pytest.mark.parametrize("strategy", sorted(ZERO))
def test_the_usual_config_is_one_that_a_profile_may_keep(strategy):
    hardware = replace(ZERO2, strategy=strategy)
    kept = replace(hardware, deepspeed=usual_config(hardware))
    assert list(deepspeed_problems(kept)) == []
    assert config_of(kept) == usual_config(hardware)


def test_a_stage_3_config_gathers_weights_for_its_checkpoints():
    kept = replace(ZERO2, strategy=Strategy.ZERO3, offload=Offload.NONE, deepspeed={"zero_optimization": {"stage": 3}})
    assert config_of(kept)["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] is True


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}, "ZeRO stage is 3"),
        ({"zero_optimization": {"stage": 2}}, "offloads nothing"),
        ({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}, "optimizer states and parameters"),
        ({"zero_optimization": 2}, "must be an object"),
        ({"scheduler": {"type": "WarmupLR"}}, "The run's own scheduler"),
        ({"wandb": {"enabled": True}}, "Metrics go to the run's page"),
        ({"zero_optimisation": {}}, "no top-level key 'zero_optimisation'"),
        ({"fp16": {"enabled": True}}, "trains in bf16"),
        ({"optimizer": {"type": "Lamb"}}, "Offloaded optimizer states must be AdamW's"),
        ({"aio": {"path": "/etc"}}, "aio.path names a path outside"),
        ({"comms_logger": {"file": "a/../../b"}}, "names a path outside"),
    ],
)
def test_what_a_profile_can_not_keep_is_said(config, words):
    assert words in " ".join(str(problem) for problem in hardware_problems(keeping(config)))


def test_a_config_needs_a_zero_strategy():
    plain = HardwareSpec("p", trainer_gpus=1, deepspeed=TUNED)
    assert "needs one of the ZeRO strategies" in " ".join(map(str, hardware_problems(plain)))


def test_an_optimizer_needs_offload():
    config = {"zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW"}}
    problems = deepspeed_problems(keeping(config, offload=Offload.NONE))
    assert [problem.fix for problem in problems] == ["Remove optimizer."]


def test_precision_may_be_said_if_it_is_the_profiles():
    assert not list(deepspeed_problems(keeping({"fp16": {"enabled": True}, **ZEROED}, precision=Precision.FP16)))


ZEROED = {"zero_optimization": TUNED["zero_optimization"]}


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"train_batch_size": 16}, []),
        ({"train_batch_size": 12}, ["train_batch_size is 12 but the run has 16."]),
        ({"train_micro_batch_size_per_gpu": 8}, ["train_micro_batch_size_per_gpu is 8 but the run has 4."]),
        ({"gradient_clipping": 1.0}, ["gradient_clipping is 1.0 but the run sets it."]),
        ({"optimizer": {"params": {"lr": 0.1}}}, ["optimizer.params.lr is 0.1 but the run has 1e-06."]),
    ],
)
def test_numbers_are_auto_or_equal_to_the_runs(numbers, words):
    settings = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "learning_rate": 1e-6}
    assert [problem.sentence for problem in number_problems(keeping(numbers), settings)] == words
