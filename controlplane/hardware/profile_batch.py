"""A profile's own batch against TRL's arithmetic and the lengths of its engines.

Apart from `profiles`, which preflight imports, as this imports preflight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from controlplane.hardware.profiles import Profile
from controlplane.hardware.server_rules import Problem
from runs.preflight.batch import Batch, Rule, broken, repairs
from workers.contract import Rollout


def batch_problems(profile: Profile) -> list[Problem]:
    return [*_arithmetic(profile), *_lengths(profile)]


def _arithmetic(profile: Profile) -> Iterator[Problem]:
    given = profile.batch
    known = {f.name for f in fields(Batch)}
    sizes: dict[str, Any] = {name: value for name, value in given.items() if name in known}
    batch = Batch(**sizes, processes=max(profile.spec.processes, 1))
    for one in broken(batch):
        # Of sizes that the profile leaves open nothing is known yet.
        whole = {"per_device_train_batch_size", "num_generations"} <= set(given)
        if whole or (one.rule == Rule.TWO_OR_MORE and "num_generations" in given):
            nearest = [f"{name.replace('_', ' ')} {value}" for name, value in repairs(batch, one.rule) if name in given]
            yield one.field, f"{one.cause} Nearest that fit: {', '.join(nearest[:3])}." if nearest else one.cause


def _lengths(profile: Profile) -> Iterator[Problem]:
    spec, completion = profile.spec, profile.batch.get("max_completion_length")
    own = spec.vllm_server if spec.vllm_server and not spec.vllm_server.attached else None
    limits = {
        "colocate_max_model_len": spec.colocate_max_model_len if spec.rollout == Rollout.COLOCATE else None,
        "server_max_model_len": own.max_model_len if own else None,
    }
    for name, limit in limits.items():
        if completion and limit is not None and 0 < limit <= completion:
            yield name, f"{limit:,} tokens leave no room for a prompt beside completions of {completion:,}."
