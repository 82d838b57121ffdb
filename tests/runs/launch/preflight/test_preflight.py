"""Every finding of every check: a draft that is fine, and what one change to it brings up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controlplane.catalogue.hardware.prices import Money
from runs.launch import preflight
from runs.launch.preflight.draft import DataFacts, Draft, GpuFacts, HostFacts
from runs.launch.preflight.finding import Finding, Grade
from workers.contract.run.hardware import HardwareSpec, Rollout, ServerSpec, WeightSync
from workers.contract.run.limits import BeyondSpec, LimitsSpec, NoBetterSpec
from workers.contract.run.prompts import PromptsSpec
from workers.contract.run.spec import LoraSpec, RewardSpec

CPU = HardwareSpec("CPU", cpu_slots=1)
COLOCATE = HardwareSpec("colocate", rollout=Rollout.COLOCATE, trainer_gpus=1)
NCCL = HardwareSpec("server", rollout=Rollout.SERVER, trainer_gpus=1, server=ServerSpec())
SWAP = replace(NCCL, server=ServerSpec(weight_sync=WeightSync.LORA))
GPU = GpuFacts(0, 80_000, True)
BOX = HostFacts("box", versions={"trl": "1.16.0"}, disk_free_mib=100_000)
GPU_BOX = replace(BOX, gpus=(GPU, replace(GPU, index=1)), versions={"vllm": "0.31.0"})
DATA = DataFacts("sums v1", rows=120, validation_rows=20, chat=True)
MODEL = {
    "ok": True,
    "parameters": 1_000_000,
    "chat_template": True,
    "context_length": 2048,
    "linear_modules": ["down_proj", "k_proj", "lm_head", "o_proj", "q_proj", "v_proj"],
}
REWARD = RewardSpec("right", "numeric_match")
FINE = Draft(
    model="/models/tiny",
    inspection=MODEL,
    hosts=(BOX,),
    data=DATA,
    rewards=(REWARD,),
    hardware=CPU,
    grpo={"max_steps": 20, "save_total_limit": 2},
)


def found(**changes: Any) -> list[Finding]:
    return preflight.check(replace(FINE, **changes))


def grpo(**values: Any) -> dict[str, Any]:
    return {"grpo": {**FINE.grpo, **values}}


def data(**facts: Any) -> dict[str, Any]:
    return {"data": replace(DATA, **facts)}


def host(**facts: Any) -> dict[str, Any]:
    return {"hosts": (replace(BOX, **facts),)}


def model(**facts: Any) -> dict[str, Any]:
    return {"inspection": {**MODEL, **facts}}


def hub(**facts: Any) -> dict[str, Any]:
    return model(**{"hub": True, "host": "box", "bytes": 2_900_000_000, "free_bytes": 41 * 10**9, **facts})


def no_better(metric: str) -> LimitsSpec:
    return LimitsSpec(no_better=NoBetterSpec(metric, 50))


PRICE = Money(2.0, "$")
ON_GPU = {"hardware": HardwareSpec("gpu", trainer_gpus=1), "hosts": (GPU_BOX,)}
LORA = LoraSpec()
CASES: list[tuple[dict[str, Any], Grade, str, str]] = [
    # model
    ({"model": ""}, Grade.STOP, "model", "No model is chosen"),
    ({"inspection": None}, Grade.NOTE, "model", "No host has inspected"),
    ({"inspection": {"ok": False, "error": "There is no folder."}}, Grade.STOP, "model", "There is no folder"),
    (model(chat_template=False), Grade.STOP, "model", "no chat template"),
    ({**data(chat=False)}, Grade.WARN, "dataset_version", "made for chat"),
    (model(custom_code=True), Grade.WARN, "model", "its own code"),
    ({"inspection": {"ok": True, "hub": True, "chat_template": None}}, Grade.NOTE, "model", "downloads it"),
    (hub(), Grade.NOTE, "model", "2.9\N{NO-BREAK SPACE}GB to download, 41\N{NO-BREAK SPACE}GB free on box"),
    (hub(free_bytes=10**9), Grade.STOP, "model", "doesn't fit on box's disk"),
    ({**hub(free_bytes=10**9), "hosts": (BOX, replace(BOX, name="b"))}, Grade.WARN, "model", "doesn't fit"),
    (hub(unreachable=True, why="refused"), Grade.WARN, "model", "could not reach the hub. refused"),
    (model(ok=False, gated=True, error="It is gated: accept its terms."), Grade.STOP, "model", "accept its terms"),
    # data
    ({"data": None}, Grade.STOP, "dataset_version", "No dataset"),
    (data(ready=False), Grade.STOP, "dataset_version", "isn't ready"),
    (data(rows=0), Grade.STOP, "dataset_version", "no rows"),
    # rewards
    ({"rewards": None}, Grade.STOP, "reward_version", "No reward config"),
    ({"rewards": ()}, Grade.STOP, "reward_version", "no components"),
    ({"rewards": (REWARD, REWARD)}, Grade.STOP, "reward_version", "2 rewards are called right"),
    ({"rewards": (replace(REWARD, weight=0.0),)}, Grade.STOP, "reward_version", "weight 0"),
    ({"rewards": (replace(REWARD, weight=-1.0),)}, Grade.WARN, "reward_version", "negative weight"),
    ({"rewards": (replace(REWARD, function="turn_count"),)}, Grade.WARN, "reward_version", "the run has no tools"),
    ({"rewards": (replace(REWARD, function="magic"),)}, Grade.STOP, "reward_version", "no reward magic"),
    ({"rewards": (replace(REWARD, params={"x": 1}),)}, Grade.STOP, "reward_version", "no such parameter"),
    (data(has_answer=False), Grade.STOP, "reward_version", "reads the column answer"),
    # profile
    ({"hardware": None}, Grade.STOP, "profile", "No hardware profile"),
    ({"hardware": replace(CPU, cpu_slots=0)}, Grade.STOP, "profile", "at least one CPU slot"),
    ({"hardware": replace(CPU, rollout=Rollout.COLOCATE)}, Grade.STOP, "profile", "needs a GPU"),
    # hosts
    ({"hosts": ()}, Grade.STOP, "host", "No host has announced itself"),
    ({"hosts": (), "machines": (HostFacts("cluster"),)}, Grade.NOTE, "host", "a machine from cluster has"),
    (
        {"hardware": COLOCATE, "machines": (HostFacts("a"), HostFacts("b"))},
        Grade.NOTE,
        "host",
        "a machine from a or b has",
    ),
    ({"hardware": COLOCATE, "machines": (HostFacts("a"),), "host_chosen": True}, Grade.STOP, "profile", "has no GPU"),
    ({"hardware": COLOCATE}, Grade.STOP, "profile", "has no GPU"),
    ({"hardware": replace(CPU, cpu_slots=9)}, Grade.STOP, "profile", "has 1 CPU slots"),
    (
        {"hardware": NCCL, "hosts": (replace(GPU_BOX, gpus=(GPU,)),)},
        Grade.STOP,
        "profile",
        "refuses two ranks on one device",
    ),
    ({"hardware": COLOCATE, "hosts": (replace(GPU_BOX, versions={}),)}, Grade.STOP, "profile", "has no vLLM"),
    (host(fresh=False, stale_for="5 min"), Grade.WARN, "host", "last heard from 5 min ago"),
    (host(draining=True), Grade.WARN, "host", "accepts no new runs"),
    (host(trainer="missing"), Grade.STOP, "host", "no trainer environment"),
    (host(trainer="checking"), Grade.NOTE, "host", "still checking"),
    ({"hosts": (GPU_BOX, BOX), "hardware": COLOCATE}, Grade.NOTE, "host", "Too small for this profile: box"),
    # disk
    (host(disk_free_mib=100), Grade.STOP, "host", "100\N{NO-BREAK SPACE}MiB of free disk space"),
    (
        {**model(parameters=10**10), **grpo(save_strategy="epoch")},
        Grade.WARN,
        "save_total_limit",
        "A checkpoint of about 112\N{NO-BREAK SPACE}GiB needs more than",  # 20 steps are a fifth of an epoch
    ),
    (
        {**model(parameters=10**10), **grpo(save_steps=5)},
        Grade.WARN,
        "save_total_limit",
        "3 checkpoints of about 112\N{NO-BREAK SPACE}GiB each need more than the 97.7\N{NO-BREAK SPACE}GiB free on box",
    ),
    # the best checkpoint
    ({"keep_best": "eval_reward", "eval_rows": 0}, Grade.WARN, "keep_best", "the run makes none"),
    ({"keep_best": "rewards/typo/mean"}, Grade.WARN, "keep_best", "no component typo"),
    (
        {**model(parameters=10**10), **grpo(save_steps=5), "keep_best": "reward"},
        Grade.WARN,
        "save_total_limit",
        "4 checkpoints of about",
    ),
    # choice of prompts
    (
        {"prompts": PromptsSpec(extra_rounds=1, spread_in="typo")},
        Grade.STOP,
        "spread_in",
        "No component that is trained on",
    ),
    ({"prompts": PromptsSpec(extra_rounds=3)}, Grade.NOTE, "extra_rounds", "8 completions, or up to 32 if"),
    ({"prompts": PromptsSpec(by_difficulty=True), "eval_rows": 0}, Grade.NOTE, "eval_rows", "can't be compared with"),
    ({"prompts": PromptsSpec(extra_rounds=3), **data(rows=3)}, Grade.WARN, "extra_rounds", "little to choose from"),
    # names
    (grpo(output_dir="/etc"), Grade.STOP, "output_dir", "set by the control plane"),
    (
        {**grpo(learning_rat=1.0), **host(schema={"trl": "1.16.0", "fields": [{"name": "learning_rate"}]})},
        Grade.STOP,
        "learning_rat",
        "has no field learning_rat",
    ),
    # values that TRL finds wrong late
    (grpo(loss_type="dappo"), Grade.STOP, "loss_type", "can't be 'dappo'"),
    (grpo(scale_rewards="groups"), Grade.STOP, "scale_rewards", "can't be"),
    (grpo(importance_sampling_level="tokens"), Grade.STOP, "importance_sampling_level", "can't be"),
    (grpo(multi_objective_aggregation="sum"), Grade.STOP, "multi_objective_aggregation", "can't be"),
    (grpo(vllm_importance_sampling_mode="mask"), Grade.STOP, "vllm_importance_sampling_mode", "can't be"),
    (grpo(vllm_model_impl="hf"), Grade.STOP, "vllm_model_impl", "can't be"),
    (grpo(temperature=0.0), Grade.STOP, "temperature", "0 is not a valid temperature"),
    (grpo(temperature=-1.0), Grade.STOP, "temperature", "-1 is not a valid temperature"),
    (grpo(top_p=1.2), Grade.STOP, "top_p", "1.2 is not a valid top_p"),
    (grpo(delta=0.5), Grade.STOP, "delta", "0.5 is not a valid delta"),
    (grpo(max_steps=0), Grade.STOP, "max_steps", "0 steps"),
    # valid values far from the usual ones
    (grpo(learning_rate=5.0), Grade.WARN, "learning_rate", "5 is an unusual value"),
    (grpo(learning_rate=5e-4), Grade.WARN, "learning_rate", "0.0005 is an unusual value"),
    ({"lora": LORA, **grpo(learning_rate=0.0)}, Grade.WARN, "learning_rate", "0 is an unusual value"),
    (grpo(beta=4.0), Grade.WARN, "beta", "4 is an unusual value"),
    (grpo(temperature=10.0), Grade.WARN, "temperature", "10 is an unusual value"),
    (grpo(epsilon=2.0), Grade.WARN, "epsilon", "2 is an unusual value"),
    (grpo(epsilon_high=5.0), Grade.WARN, "epsilon_high", "5 is an unusual value"),
    # arithmetic
    (grpo(num_generations=6), Grade.STOP, "num_generations", "not a whole number of groups"),
    (grpo(num_generations=1), Grade.STOP, "num_generations", "at least 2"),
    (
        grpo(generation_batch_size=16, steps_per_generation=2),
        Grade.STOP,
        "steps_per_generation",
        "can't both be set",
    ),
    (grpo(generation_batch_size=12), Grade.STOP, "generation_batch_size", "can't be divided"),
    (
        {"eval_rows": 8, **grpo(per_device_eval_batch_size=3)},
        Grade.STOP,
        "per_device_eval_batch_size",
        "evaluation batch",
    ),
    # steps
    (data(rows=3) | grpo(per_device_train_batch_size=32), Grade.STOP, "dataset_version", "without a single step"),
    ({}, Grade.NOTE, "max_steps", "20 steps use 20 of the 100 training prompts"),
    (grpo(max_steps=150), Grade.NOTE, "max_steps", "150 steps go over the 100 training prompts 1.5 times"),
    (grpo(max_steps=-1, num_train_epochs=2.0), Grade.NOTE, "num_train_epochs", "2 epochs are 200 steps"),
    ({}, Grade.NOTE, "num_generations", "1 prompt × 8 completions"),
    # limits
    ({"limits": LimitsSpec(money=5)}, Grade.WARN, "limit_money", "A run on the CPU uses no GPU-hours"),
    ({"limits": LimitsSpec(money=5), **ON_GPU}, Grade.STOP, "limit_money", "box has no price per GPU-hour"),
    (
        {"limits": LimitsSpec(money=5), **ON_GPU, "hosts": (GPU_BOX, replace(GPU_BOX, name="b", gpu_hour=PRICE))},
        Grade.WARN,
        "limit_money",
        "would not apply there",
    ),
    ({"limits": no_better("eval_reward")}, Grade.WARN, "stop_metric", "comes from evaluations, but the run makes none"),
    ({"limits": LimitsSpec(beyond=BeyondSpec("kl", 1, 5))}, Grade.WARN, "bound_metric", "With β = 0, kl isn't logged"),
    ({"limits": no_better("reward")}, Grade.NOTE, "stop_metric", "the checkpoint from that step may be deleted"),
    ({"limits": no_better("rewards/wrong/mean")}, Grade.WARN, "stop_metric", "has no component wrong"),
    ({"limits": no_better("rewad")}, Grade.WARN, "stop_metric", "TRL logs no metric rewad"),
    # evaluation
    ({"eval_rows": 21}, Grade.STOP, "eval_rows", "has only 20 validation rows"),
    ({"eval_rows": 1, "data": replace(DATA, validation_rows=0)}, Grade.STOP, "eval_rows", "has no validation rows"),
    ({"eval_rows": 10, **grpo(eval_steps=50)}, Grade.WARN, "eval_steps", "before its first evaluation"),
    # lengths
    (grpo(max_completion_length=2048), Grade.STOP, "max_completion_length", "leave no room"),
    (
        {**data(longest_prompt_chars=6000), **grpo(max_completion_length=1024)},
        Grade.WARN,
        "max_completion_length",
        "longest prompt",
    ),
    (
        {"hardware": replace(NCCL, server=ServerSpec(max_model_len=256)), "hosts": (GPU_BOX,)},
        Grade.STOP,
        "max_completion_length",
        "the vLLM server's maximum length",
    ),
    (
        {"hardware": COLOCATE, "hosts": (GPU_BOX,), **grpo(vllm_max_model_length=128)},
        Grade.STOP,
        "max_completion_length",
        "vllm_max_model_length",
    ),
    # combinations
    (grpo(sync_ref_model=True), Grade.STOP, "sync_ref_model", "keeps none"),
    ({"lora": LORA, **grpo(sync_ref_model=True, beta=0.1)}, Grade.STOP, "sync_ref_model", "with LoRA"),
    (grpo(loss_type="luspo"), Grade.WARN, "loss_type", "whole sequences"),
    (grpo(loss_type="vespo", importance_sampling_level="sequence"), Grade.WARN, "loss_type", "of tokens"),
    (grpo(importance_sampling_level="sequence"), Grade.WARN, "loss_type", "GSPO"),
    (grpo(epsilon_high=0.1), Grade.WARN, "epsilon_high", "below the lower one"),
    (
        grpo(vllm_importance_sampling_clip_min=4.0),
        Grade.STOP,
        "vllm_importance_sampling_clip_min",
        "not below the upper bound",
    ),
    (
        {"hardware": COLOCATE, "hosts": (GPU_BOX,), **grpo(loss_type="vespo")},
        Grade.STOP,
        "vllm_importance_sampling_mode",
        "token mode",
    ),
    (grpo(lr_scheduler_type="cosine_with_min_lr"), Grade.STOP, "lr_scheduler_type", "needs min_lr"),
    (
        grpo(lr_scheduler_type="cosine_with_min_lr", lr_scheduler_kwargs=5),
        Grade.STOP,
        "lr_scheduler_kwargs",
        "not a JSON object",
    ),
    (grpo(warmup_steps=20), Grade.WARN, "warmup_steps", "as long as the run"),
    ({"attn_implementation": "flash_attention_2"}, Grade.STOP, "attn_implementation", "only on GPUs"),
    (grpo(bf16=True, fp16=True), Grade.STOP, "precision", "both on"),
    # LoRA
    ({"lora": replace(LORA, target_modules=())}, Grade.STOP, "lora_targets", "No LoRA target"),
    ({"lora": replace(LORA, target_modules=("lm_head",))}, Grade.STOP, "lora_targets", "refuses a LoRA on lm_head"),
    ({"lora": replace(LORA, target_modules=("query",))}, Grade.STOP, "lora_targets", "no module query"),
    ({"lora": replace(LORA, alpha=1)}, Grade.WARN, "lora_alpha", "less than 1/4"),
    ({"hardware": SWAP, "hosts": (GPU_BOX,)}, Grade.STOP, "use_lora", "all weights are trained"),
    (
        {"hardware": SWAP, "hosts": (GPU_BOX,), "lora": replace(LORA, r=600, alpha=600)},
        Grade.STOP,
        "lora_r",
        "up to rank 512",
    ),
]


def test_a_draft_that_is_fine_has_only_notes():
    assert {f.grade for f in found()} == {Grade.NOTE}
    assert not preflight.blocks(found())


def test_a_change_brings_up_its_finding(subtests):
    for changes, grade, field, words in CASES:
        with subtests.test(field=field):
            findings = found(**changes)
            told = (f"{f.cause} {f.detail}" for f in findings if (f.grade, f.field) == (grade, field))
            assert any(words in each for each in told), findings


def test_whatever_is_wrong_comes_with_what_to_do(subtests):
    for changes, _, field, _ in CASES:
        with subtests.test(field=field):
            assert all(f.fix for f in found(**changes) if f.grade != Grade.NOTE)


def test_a_server_profile_on_two_gpus_is_fine():
    assert not preflight.blocks(found(hardware=NCCL, hosts=(GPU_BOX,)))
    assert not preflight.blocks(found(hardware=SWAP, hosts=(GPU_BOX,), lora=LORA))


def test_all_linear_needs_no_list_of_modules():
    assert not preflight.blocks(found(lora=replace(LORA, target_modules=("all-linear",))))


def test_an_unusual_value_comes_with_the_usual_ones():
    finding = next(f for f in found(**grpo(learning_rate=5.0)) if f.field == "learning_rate")
    assert finding.fix.startswith("Usual values are 1e-07 to 0.0001. ")


@pytest.mark.parametrize(
    "changes",
    [
        {"lora": LORA, **grpo(learning_rate=5e-4)},
        grpo(loss_type="cispo", epsilon_high=5.0),
        grpo(loss_type="grpo", importance_sampling_level="sequence", epsilon=3e-4, epsilon_high=4e-4),
    ],
    ids=["the rate of a LoRA", "the weights of CISPO", "the ratios of whole sequences"],
)
def test_what_is_usual_depends_on_what_is_trained_and_how(changes):
    assert not any(f.grade == Grade.WARN for f in found(**changes))


def test_the_worst_comes_first():
    grades = [f.grade for f in found(**grpo(num_generations=6, epsilon_high=0.1))]
    assert grades == sorted(grades, key=[Grade.STOP, Grade.WARN, Grade.NOTE].index)


def test_a_default_of_the_wrong_type_is_left_aside():
    odd = {"trl": "1.16.0", "fields": [], "defaults": {"num_generations": "many", "max_completion_length": None}}
    assert not preflight.blocks(found(**host(schema=odd)))


def test_an_empty_draft_is_checked_without_an_error():
    assert preflight.blocks(preflight.check(Draft()))


NUMERIC_FIXES = [case for case in CASES if case[1] == Grade.STOP and "grpo" in case[0]]


def test_a_one_click_fix_ends_the_finding(subtests):
    for changes, _, field, words in NUMERIC_FIXES:
        with subtests.test(field=field):
            finding = next(f for f in found(**changes) if f.field == field and words in f.cause)
            for fix in finding.fixes:
                values = {name: _typed(text) for name, text in fix.values.items()}
                mended = {**changes, "grpo": {k: v for k, v in {**changes["grpo"], **values}.items() if v is not None}}
                assert not any(f.field == field and words in f.cause for f in found(**mended)), fix


def _typed(text: str) -> Any:
    if text == "":
        return None
    return int(text) if text.isdigit() else text


def test_a_reward_for_the_other_kind_of_tests_is_told() -> None:
    asserts, pairs = RewardSpec("a", "tests_passed"), RewardSpec("b", "input_output_tests")
    for rewards, python, pairs_count, words in (
        ((asserts,), 0, 9, "a gives no score to the 9 rows of sums v1 with input/output tests."),
        ((pairs,), 7, 2, "b gives no score to the 7 rows of sums v1 with tests in Python."),
        ((asserts,), 9, 0, ""),
        ((asserts, pairs), 4, 5, ""),
        ((asserts,), None, None, ""),
    ):
        facts = data(python_tests=python, io_tests=pairs_count, columns=("test_cases",))
        causes = [finding.cause for finding in found(**facts, rewards=rewards) if "no score" in finding.cause]
        assert causes == [words] * bool(words)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        # bins of 100 tokens up to 1,000: room for 1,536 - 1,024 = 512
        ({"longest_prompt_tokens": 1500, "prompt_bins": (50, 20, 10, 5, 5, 4, 3, 2, 1, 0), "prompt_top": 999},
         "has 1,500 tokens. With 1,024 tokens of completion, it may exceed 1,536"),
        ({"longest_prompt_tokens": 1500, "prompt_bins": (50, 20, 10, 5, 5, 4, 3, 2, 1, 0), "prompt_top": 999},
         "as may about 10 of 100 prompts"),
        ({"longest_prompt_chars": 4500, "prompt_bins": (90, 5, 5), "prompt_top": 2999},
         "as may about 7 of 100 prompts"),
        ({"longest_prompt_tokens": 600, "prompt_bins": (99, 1), "prompt_top": 199}, "(the model's context)."),
    ],
)  # fmt: skip
def test_it_says_how_many_prompts_are_too_long(facts: dict[str, Any], words: str) -> None:
    changes = {**data(**facts), **grpo(max_completion_length=1024), **model(context_length=1536)}
    causes = [finding.cause for finding in found(**changes) if "longest prompt" in finding.cause]
    assert [cause for cause in causes if words in cause], causes
