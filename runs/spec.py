"""From catalogue rows to the frozen spec: what is edited tomorrow can't change a run of yesterday."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.datasets.models import DatasetVersion
from controlplane.hardware.models import HardwareProfile
from controlplane.rewards.models import RewardConfig
from runs.models import Run
from workers.contract import (
    ContractError,
    DataSpec,
    HardwareSpec,
    LoraSpec,
    ModelSpec,
    RewardSpec,
    RunSpec,
    from_dict,
    to_dict,
)


def freeze(
    *,
    run_id: str,
    name: str,
    kind: str,
    model: ModelSpec | str,
    dataset_version: DatasetVersion,
    reward_config: RewardConfig,
    profile: HardwareProfile,
    grpo: Mapping[str, Any],
    lora: LoraSpec | None = None,
    attn_implementation: str | None = None,
    eval_rows: int = 0,
) -> RunSpec:
    """Raises ContractError, naming the field, for rows that don't make a spec."""
    rewards = tuple(from_dict(RewardSpec, part, at=f"rewards[{i}]") for i, part in enumerate(reward_config.components))
    _check(dataset_version, rewards, eval_rows)
    spec = RunSpec(
        run_id=run_id,
        name=name,
        kind=kind,
        model=ModelSpec(path=model) if isinstance(model, str) else model,
        data=DataSpec(
            name=dataset_version.dataset.name,
            version=dataset_version.number,
            sha256=dataset_version.sha256,
            rows=dataset_version.rows,
            eval_rows=eval_rows,
        ),
        rewards=rewards,
        hardware=from_dict(HardwareSpec, {**profile.spec, "profile": profile.name}, at="hardware"),
        grpo=dict(grpo),
        lora=lora,
        attn_implementation=attn_implementation or None,
    )
    # Through JSON and back: a value that would not survive the way to the host fails here, in front of the person.
    return from_dict(RunSpec, to_dict(spec))


def spec_of(run: Run) -> RunSpec:
    return from_dict(RunSpec, run.spec)


def _check(dataset_version: DatasetVersion, rewards: tuple[RewardSpec, ...], eval_rows: int) -> None:
    if dataset_version.status != DatasetVersion.READY:
        raise ContractError(f"data: {dataset_version} is not ready ({dataset_version.status})")
    if not 0 <= eval_rows < max(1, dataset_version.rows):
        raise ContractError(f"data.eval_rows: {eval_rows} of {dataset_version.rows} rows leave nothing to train on")
    if not rewards:
        raise ContractError("rewards: a run needs at least one")
    names = [reward.name for reward in rewards]
    if len(set(names)) < len(names):
        raise ContractError("rewards: two components have the same name, and TRL would merge them silently")
