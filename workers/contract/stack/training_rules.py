"""GRPOConfig values that TRL refuses only after loading the model, or never, and arguments that runs can't set."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workers.contract.run.problem import Problem

CHOICES: dict[str, tuple[str, ...]] = {
    "loss_type": ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),
    "scale_rewards": ("group", "batch", "none"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "vllm_importance_sampling_mode": ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
    "vllm_model_impl": ("vllm", "transformers"),
}
TRL_DEFAULTS: dict[str, Any] = {
    "beta": 0.0,
    "entropy_coef": 0.0,
    "epsilon": 0.2,
    "generation_batch_size": None,
    "gradient_accumulation_steps": 1,
    "importance_sampling_level": "token",
    "loss_type": "dapo",
    "lr_scheduler_type": "linear",
    "max_completion_length": 512,
    "max_steps": -1,
    "multi_objective_aggregation": "sum_then_normalize",
    "num_generations": 8,
    "num_generations_eval": None,
    "num_iterations": 1,
    "num_train_epochs": 3.0,
    "per_device_eval_batch_size": 8,
    "per_device_train_batch_size": 8,
    "save_steps": 500,
    "save_strategy": "steps",
    "scale_rewards": "group",
    "steps_per_generation": None,
    "sync_ref_model": False,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "vllm_importance_sampling_clip_max": 3.0,
    "vllm_importance_sampling_clip_min": None,
    "vllm_importance_sampling_correction": True,
    "vllm_importance_sampling_mode": "sequence_mask",
}
"""Assumed defaults of fields that nobody has set and no host has reported (TRL 1.16)."""

BOOLEAN_CHOICES = frozenset({"scale_rewards"})
"""Arguments of CHOICES for which TRL still accepts booleans: True for `group` and False for `none`."""


@dataclass(frozen=True)
class Range:
    low: float
    high: float | None = None
    above_low: bool = False
    """True if `low` itself is excluded."""

    def holds(self, value: float) -> bool:
        is_above = value > self.low if self.above_low else value >= self.low
        return is_above and (self.high is None or value <= self.high)

    @property
    def text(self) -> str:
        start = f"above {self.low:g}" if self.above_low else f"at least {self.low:g}"
        return start if self.high is None else f"{start} and at most {self.high:g}"


RANGES: dict[str, Range] = {
    "temperature": Range(0, above_low=True),
    "top_p": Range(0, 1, above_low=True),
    "top_k": Range(0),
    "min_p": Range(0, 1),
    "repetition_penalty": Range(0, above_low=True),
    "learning_rate": Range(0),
    "max_grad_norm": Range(0),
    "beta": Range(0),
    # At 0 the ratio is clipped to exactly 1, and completions of the current policy still train it.
    "epsilon": Range(0),
    "epsilon_high": Range(0),
    # An upper bound of the ratio. At 1 or below, it would clip every ratio of an on-policy batch, so that nothing
    # would be learnt.
    "delta": Range(1, above_low=True),
    "num_iterations": Range(1),
    "num_train_epochs": Range(0, above_low=True),
    "max_completion_length": Range(1),
    "per_device_train_batch_size": Range(1),
    "per_device_eval_batch_size": Range(1),
    "gradient_accumulation_steps": Range(1),
    "steps_per_generation": Range(1),
    "generation_batch_size": Range(1),
    "top_entropy_quantile": Range(0, 1),
    "ref_model_mixup_alpha": Range(0, 1),
    "ref_model_sync_steps": Range(1),
    # Below 1 it is a share of the run's steps.
    "save_steps": Range(0, above_low=True),
}


@dataclass(frozen=True)
class UsualRange:
    """The range of values that runs usually have. Others are allowed, but are probably a mistake."""

    low: float
    high: float
    otherwise: str

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


_RATE_EFFECT = "Lower values learn next to nothing; higher ones usually ruin the model within a few steps."
_CLIP_EFFECT = "Lower values clip nearly every change of the policy; higher ones clip none."
USUAL_RANGES: dict[str, UsualRange] = {
    "learning_rate": UsualRange(1e-7, 1e-4, _RATE_EFFECT),
    "beta": UsualRange(0, 0.5, "Higher values keep the policy at the initial model, so the reward hardly matters."),
    "temperature": UsualRange(0.3, 1.5, "Lower values make the completions alike; higher ones make them random."),
    # Bounds of whole sequences (GSPO) are around 3e-4.
    "epsilon": UsualRange(1e-4, 0.5, _CLIP_EFFECT),
    "epsilon_high": UsualRange(1e-4, 1, _CLIP_EFFECT),
}
USUAL_LORA_RATE = UsualRange(1e-6, 1e-3, _RATE_EFFECT)
USUAL_CISPO_HIGH = UsualRange(1, 10, _CLIP_EFFECT)
"""Usual range of epsilon_high with CISPO, which clips importance weights at up to 5."""

RESERVED = frozenset({
    "output_dir", "logging_steps", "logging_strategy", "logging_first_step", "logging_nan_inf_filter", "report_to",
    "run_name", "project", "disable_tqdm", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id",
    "use_cpu", "local_rank", "do_train", "do_eval", "do_predict", "resume_from_checkpoint", "push_to_hub", "hub_token",
    "hub_private_repo", "hub_model_id", "hub_strategy", "hub_always_push", "hub_revision", "log_completions",
    "log_completions_hub_repo", "log_multimodal", "log_unique_prompts", "num_completions_to_print", "reward_weights",
    "auto_find_batch_size", "trust_remote_code", "model_init_kwargs", "deepspeed", "fsdp", "fsdp_config",
    "parallelism_config", "accelerator_config", "ddp_backend", "use_vllm", "vllm_mode", "vllm_enable_sleep_mode",
    "vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_server_timeout", "vllm_group_port",
    "vllm_gpu_memory_utilization", "vllm_tensor_parallel_size", "use_transformers_paged",
    "vllm_importance_sampling_cap", "enable_jit_checkpoint", "load_best_model_at_end", "remove_unused_columns",
    "restore_callback_states_from_checkpoint", "ignore_data_skip", "log_on_each_node", "debug", "label_names",
    "batch_eval_metrics", "include_for_metrics", "metric_for_best_model", "greater_is_better",
})  # fmt: skip
"""Arguments that a run can't set: the control plane or the trainer sets them (files, logging, devices, vLLM,
credentials), or they are deprecated, dangerous or meaningless here."""
DECIDED_BY_PROFILES = frozenset({"optim", "gradient_checkpointing", "use_liger_kernel"})
"""Arguments that a hardware profile sets unless the run does, so that TRL's own default can be chosen as well."""
MADE_BY_THE_FORM = frozenset({"bf16", "fp16", "eval_strategy"})
"""Arguments that the New run page derives from other fields; a run may have them, but nobody enters them."""


def value_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of single GRPOConfig values, each independent of the others."""
    for name, value in settings.items():
        if name in RESERVED:
            yield Problem(name, f"{name} is set by the control plane, not by a run.", "Remove it.")
        elif name in CHOICES:
            yield from _choice(name, value)
        elif name in RANGES and isinstance(value, int | float) and not isinstance(value, bool):
            if not RANGES[name].holds(value):
                yield Problem(name, f"{value:g} is not a valid {name}.", f"It must be {RANGES[name].text}.")
        elif name == "max_steps" and value == 0:
            fix = "Enter a number of steps, or leave it empty to use epochs."
            yield Problem(name, "0 steps train nothing; TRL would use epochs instead.", fix)


def unusual_values(settings: Mapping[str, Any], *, lora: bool) -> Iterator[Problem]:
    """Yield valid values outside the range that runs usually have."""
    ranges = dict(USUAL_RANGES)
    if lora:
        ranges["learning_rate"] = USUAL_LORA_RATE
    if settings.get("loss_type") == "cispo":
        ranges["epsilon_high"] = USUAL_CISPO_HIGH
    for name, bounds in ranges.items():
        value = settings.get(name)
        if isinstance(value, int | float) and RANGES[name].holds(value) and not bounds.holds(value):
            fix = f"Usual values are {bounds.low:g} to {bounds.high:g}. {bounds.otherwise}"
            yield Problem(name, f"{value:g} is an unusual value.", fix)


def _choice(name: str, value: Any) -> Iterator[Problem]:
    if value is None or value in CHOICES[name] or (name in BOOLEAN_CHOICES and isinstance(value, bool)):
        return
    sentence = f"{name} can't be {value!r}; TRL would notice that only after loading the model."
    yield Problem(name, sentence, f"Use one of: {', '.join(CHOICES[name])}.")
