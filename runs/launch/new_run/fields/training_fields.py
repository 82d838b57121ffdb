"""The fields of the New run page that become GRPOConfig arguments, with their help texts.

Names are TRL's. Other arguments, except those that the control plane sets, are under Advanced, typed by the trainer's
schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django import forms

from runs.launch.new_run.fields.episode_fields import EPISODE_FIELDS
from runs.launch.new_run.fields.several_fields import SEVERAL_FIELDS
from workers.contract.run.settings import FIELDS
from workers.contract.stack.training_rules import CHOICES


class FieldSection(StrEnum):
    """The cards and folds of the Training part, in order."""

    MAIN = "main"
    OPTIMISER = "Optimizer and schedule"
    LOSS = "Loss and clipping"
    SAMPLING = "Sampling"
    PROMPTS = "Choice of prompts"
    PRECISION = "Precision and attention"
    LORA = "LoRA"
    EVALUATION = "Evaluation"
    CHECKPOINTS = "Checkpoints and resume"
    LIMITS = "Limits and early stop"
    SINKS = "Also send to"
    SEVERAL = "Several runs: seeds and a grid"


@dataclass(frozen=True)
class TrainingField:
    name: str
    label: str
    help: str
    group: FieldSection
    kind: type
    default: Any = None
    """None: left to TRL if empty."""
    low: float | None = None
    high: float | None = None
    choices: tuple[tuple[str, str], ...] = ()
    required: bool = True

    def form_field(self) -> forms.Field:
        common: dict[str, Any] = {
            "label": self.label,
            "help_text": self.help,
            "initial": self.default,
            "required": self.required,
        }
        if self.choices:
            return forms.ChoiceField(choices=self.choices, **common)
        if self.kind is int:
            return forms.IntegerField(**common, min_value=_int(self.low), max_value=_int(self.high) or 10**9)
        # A text input, so that 1e-6 can be entered and stays as entered. Without autocomplete="off", under which
        # browsers forget a field's text at the Back button.
        widget = forms.TextInput(attrs={"inputmode": "decimal"})
        return forms.FloatField(**common, min_value=self.low, max_value=self.high, widget=widget)


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)


def _same(*values: str) -> tuple[tuple[str, str], ...]:
    return tuple((value, value) for value in values)


LOSSES = {
    "dapo": "dapo: mean over all tokens (TRL's default)",
    "grpo": "grpo: mean per completion, then over completions",
    "dr_grpo": "dr_grpo: divided by the maximum length, no length bias",
    "bnpo": "bnpo: mean over the tokens of each local batch",
    "cispo": "cispo: clipped weights, every token keeps its gradient",
    "sapo": "sapo: soft gate instead of a clip",
    "luspo": "luspo: sequences weighted by their length",
    "vespo": "vespo: variational weights for off-policy data",
}
SCALES = (
    ("group", "group: standard deviation within each prompt's group"),
    ("batch", "batch: standard deviation of the whole batch"),
    ("none", "none: unscaled (Dr. GRPO)"),
)
SCHEDULERS = _same(
    "linear",
    "cosine",
    "constant",
    "constant_with_warmup",
    "cosine_with_restarts",
    "polynomial",
    "inverse_sqrt",
    "cosine_with_min_lr",
    "cosine_warmup_with_min_lr",
    "warmup_stable_decay",
)

SAVING = (("steps", "every N steps"), ("epoch", "every epoch"))

M, OPT, L, S = FieldSection.MAIN, FieldSection.OPTIMISER, FieldSection.LOSS, FieldSection.SAMPLING
E, C = FieldSection.EVALUATION, FieldSection.CHECKPOINTS

TRAINING: tuple[TrainingField, ...] = (
    TrainingField("max_steps", "Steps", "Optimizer steps. Leave empty to use epochs.", M, int, 200, 1, required=False),
    TrainingField(
        "num_train_epochs", "Epochs", "Passes over the prompts; only used when steps is empty.", M, float, 1.0, 0.0001
    ),
    TrainingField(
        "learning_rate",
        "Learning rate",
        "1e-6 is usual for all weights, 1e-5 to 1e-4 for a LoRA.",
        M,
        float,
        "1e-6",
        0,
        10,
    ),
    TrainingField(
        "num_generations",
        "Generations per prompt",
        "Completions compared with each other (G). More give a steadier signal and cost more time.",
        M,
        int,
        8,
        1,
        4096,
    ),
    TrainingField(
        "per_device_train_batch_size",
        "Batch per process",
        "Completions in one pass on each process. Lower it when memory runs out.",
        M,
        int,
        8,
        1,
        100_000,
    ),
    TrainingField(
        "gradient_accumulation_steps",
        "Gradient accumulation",
        "Passes added up before each optimizer step.",
        M,
        int,
        1,
        1,
        100_000,
    ),
    TrainingField(
        "max_completion_length", "Completion length", "Maximum tokens per completion.", M, int, 256, 1, 1_000_000
    ),
    TrainingField(
        "temperature", "Temperature", "Higher samples more varied completions. 1 is usual.", M, float, 1.0, 0, 100
    ),
    TrainingField(
        "beta",
        "β, KL weight",
        "Pulls the policy towards the initial model. 0 uses no reference model and logs no KL.",
        M,
        float,
        "0",
        0,
    ),
    TrainingField(
        "num_iterations",
        "Iterations per batch",
        "Optimizer passes over each batch of completions. Above 1 the clipping starts to matter.",
        M,
        int,
        1,
        1,
        1000,
    ),
    TrainingField(
        "lr_scheduler_type",
        "Scheduler",
        "How the learning rate changes over the run.",
        OPT,
        str,
        "linear",
        choices=SCHEDULERS,
    ),
    TrainingField(
        "warmup_steps",
        "Warm-up",
        "Steps over which the learning rate rises from 0; below 1 it is a share of the run.",
        OPT,
        float,
        "0",
        0,
    ),
    TrainingField("max_grad_norm", "Maximum gradient norm", "Larger gradients are clipped to it.", OPT, float, 1.0, 0),
    TrainingField("seed", "Seed", "Seeds shuffling, sampling and the held-out rows.", OPT, int, 42, 0, 2**32 - 1),
    TrainingField(
        "loss_type",
        "Loss",
        "How token losses are averaged.",
        L,
        str,
        "dapo",
        choices=tuple((name, LOSSES[name]) for name in (*LOSSES,) if name in CHOICES["loss_type"]),
    ),
    TrainingField(
        "scale_rewards",
        "Reward scaling",
        "What reward differences are divided by to become advantages.",
        L,
        str,
        "group",
        choices=SCALES,
    ),
    TrainingField("epsilon", "Clip ε, low", "How far below 1 the ratio may fall.", L, float, 0.2, 0),
    TrainingField(
        "epsilon_high",
        "Clip ε, high",
        "How far above 1 it may rise. Leave empty for the low value. DAPO uses 0.28.",
        L,
        float,
        None,
        0,
        required=False,
    ),
    TrainingField("top_p", "Top-p", "Sample from the likeliest tokens that make up this share.", S, float, 1.0, 0, 1),
    TrainingField(
        "eval_steps", "Evaluate every", "Steps between evaluations on the held-out rows.", E, int, 50, 1, 10**7
    ),
    TrainingField(
        "per_device_eval_batch_size",
        "Evaluation batch per process",
        "Completions; a whole number of groups over all processes.",
        E,
        int,
        8,
        1,
        100_000,
    ),
    TrainingField(
        "save_strategy",
        "Save",
        "When to write a checkpoint; the last step always makes one.",
        C,
        str,
        "steps",
        choices=SAVING,
    ),
    TrainingField("save_steps", "Save every", "Steps between checkpoints; not used with every epoch.", C, int, 100, 1),
    TrainingField(
        "save_total_limit",
        "Checkpoints kept",
        "How many of the newest checkpoints to keep; leave empty for all.",
        C,
        int,
        2,
        1,
        1000,
        required=False,
    ),
)

NAMES = frozenset(f.name for f in TRAINING)
EVALUATION_ONLY = ("eval_steps", "per_device_eval_batch_size", "eval_reward_version")

PRECISIONS = (
    ("profile", "as the profile says"),
    ("bf16", "bf16"),
    ("fp16", "fp16"),
    ("fp32", "fp32"),
)
PRECISION_FLAGS: dict[str, dict[str, bool]] = {
    # A run's own arguments override its profile, so they are set only if the user chose them.
    "profile": {},
    "bf16": {"bf16": True, "fp16": False},
    "fp16": {"bf16": False, "fp16": True},
    "fp32": {"bf16": False, "fp16": False},
}
ATTENTIONS = (
    ("", "the model's default"),
    *_same("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"),
)

FORM_NAMES = frozenset(
    {
        "key",
        "cloned_from",
        "host",
        "dataset_version",
        "reward_version",
        "eval_reward_version",
        "profile",
        "vllm_share",
        "precision",
        "use_lora",
        *FIELDS.values(),
        *SEVERAL_FIELDS,
        *EPISODE_FIELDS,
    }
)
"""The form's own fields, which a trainer's schema can't override."""
