"""A learnability check: a run's own first steps at learning rate 0.

Every completion is then the starting model's, and a step does all the work that the run's steps will do, so its
duration and memory are those of the run. Standard library only.
"""

from collections.abc import Mapping
from math import ceil
from typing import Any

from workers.contract.run.batch_rules import Batch

CHECK = "check"
"""The kind of a learnability check (RunSpec.kind). Its spec has the settings of the run that is to be launched."""
GROUPS = 64
"""Minimum number of prompt groups to sample, unless the spec says otherwise."""
MIN_GENERATIONS = 3
"""Minimum number of generations: the first includes one-time work (compiling, warm-up), the others are timed."""
_OMITTED_SETTINGS = frozenset({"num_train_epochs", "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio"})
_OVERRIDES: dict[str, Any] = {
    "learning_rate": 0.0,
    "lr_scheduler_type": "constant",
    "save_strategy": "no",
    "eval_strategy": "no",
    "eval_on_start": False,
}


def steps(batch: Batch, groups: int = GROUPS) -> int:
    """Count the optimizer steps of a check: whole generations, the first of which is not timed."""
    return max(MIN_GENERATIONS, ceil(groups / batch.prompts)) * batch.steps_per_generated


def settings(grpo: Mapping[str, Any], batch: Batch, groups: int = GROUPS) -> dict[str, Any]:
    """Return a run's GRPO settings changed for its learnability check."""
    remaining = {name: value for name, value in grpo.items() if name not in _OMITTED_SETTINGS}
    return {**remaining, **_OVERRIDES, "max_steps": steps(batch, groups)}
