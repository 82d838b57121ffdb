"""Values that TRL finds wrong only after it has loaded the model, or never: enumerations and ranges."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, Fix, stop

ENUMS: dict[str, tuple[str, ...]] = {
    "loss_type": ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "scale_rewards": ("group", "batch", "none"),
    "importance_sampling_level": ("token", "sequence"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "vllm_importance_sampling_mode": ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
    "vllm_mode": ("colocate", "server"),
    "vllm_model_impl": ("vllm", "transformers"),
}


@dataclass(frozen=True)
class Range:
    low: float
    high: float | None = None
    open_low: bool = False
    """The lowest value itself is refused."""

    def holds(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        return above and (self.high is None or value <= self.high)

    @property
    def words(self) -> str:
        start = f"above {self.low:g}" if self.open_low else f"at least {self.low:g}"
        return start if self.high is None else f"{start} and at most {self.high:g}"


RANGES: dict[str, Range] = {
    "temperature": Range(0, 100, open_low=True),
    "top_p": Range(0, 1, open_low=True),
    "top_k": Range(0),
    "min_p": Range(0, 1),
    "repetition_penalty": Range(0, open_low=True),
    "epsilon": Range(0, open_low=True),
    "epsilon_high": Range(0, open_low=True),
    "delta": Range(1, open_low=True),
    "beta": Range(0),
    "num_iterations": Range(1),
    "max_completion_length": Range(1),
    "gradient_accumulation_steps": Range(1),
    "per_device_train_batch_size": Range(1),
    "per_device_eval_batch_size": Range(1),
    "steps_per_generation": Range(1),
    "generation_batch_size": Range(1),
    "learning_rate": Range(0),
    "max_grad_norm": Range(0),
    "top_entropy_quantile": Range(0, 1),
    "ref_model_mixup_alpha": Range(0, 1),
    "ref_model_sync_steps": Range(1),
    "num_train_epochs": Range(0, open_low=True),
    "save_steps": Range(1),
}


def check(draft: Draft) -> Iterator[Finding]:
    for name, allowed in ENUMS.items():
        value = draft.grpo.get(name)
        if value is not None and value not in allowed:
            close = difflib.get_close_matches(str(value), allowed, n=2)
            yield stop(
                name,
                f"{name} has no value {value!r}; TRL would find that only after loading the model.",
                f"Use one of: {', '.join(allowed)}.",
                *(Fix(f"Use {match}", {name: match}) for match in close),
            )
    for name, limits in RANGES.items():
        value = draft.grpo.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and not limits.holds(value):
            yield stop(name, f"{name} is {value:g}.", f"It must be {limits.words}.")
    if draft.grpo.get("max_steps") == 0:
        yield stop("max_steps", "0 steps train nothing.", "Give a number of steps, or leave it empty to go by epochs.")
