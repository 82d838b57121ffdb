"""From catalogue rows to the frozen spec: what is edited tomorrow can't change a run of yesterday."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.datasets.models import DatasetVersion
from controlplane.hardware.models import HardwareProfile
from controlplane.rewards.models import SUM_THEN_NORMALIZE, RewardVersion
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

AGGREGATION = "multi_objective_aggregation"


def freeze(
    *,
    run_id: str,
    name: str,
    kind: str,
    model: ModelSpec | str,
    dataset_version: DatasetVersion,
    reward_version: RewardVersion,
    profile: HardwareProfile,
    grpo: Mapping[str, Any],
    lora: LoraSpec | None = None,
    attn_implementation: str | None = None,
    eval_rows: int = 0,
) -> RunSpec:
    """Raises ContractError, naming the field, for rows that don't make a spec."""
    parts = reward_version.components
    rewards = tuple(from_dict(RewardSpec, part, at=f"rewards[{i}]") for i, part in enumerate(parts))
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
        grpo=with_aggregation(reward_version, grpo),
        lora=lora,
        attn_implementation=attn_implementation or None,
        failed_share=reward_version.failed_share,
    )
    # Through JSON and back: a value that would not survive the way to the host fails here, in front of the person.
    return from_dict(RunSpec, to_dict(spec))


def with_aggregation(version: RewardVersion, grpo: Mapping[str, Any]) -> dict[str, Any]:
    """The reward config's way from components to advantages, unless the person chose one; TRL's own is left unsaid."""
    if version.aggregation == SUM_THEN_NORMALIZE:
        return dict(grpo)
    return {AGGREGATION: version.aggregation, **grpo}


def spec_of(run: Run) -> RunSpec:
    return from_dict(RunSpec, run.spec)


def unreadable(run: Run) -> str:
    """Why the spec of a run can't be read, which another version has written; "" as a rule."""
    try:
        spec_of(run)
    except ContractError as error:
        return str(error)
    return ""


def _check(dataset_version: DatasetVersion, rewards: tuple[RewardSpec, ...], eval_rows: int) -> None:
    if dataset_version.status != DatasetVersion.READY:
        raise ContractError(f"data: {dataset_version} is not ready ({dataset_version.status})")
    if not 0 <= eval_rows <= dataset_version.validation_rows:
        kept = dataset_version.validation_rows
        raise ContractError(f"data.eval_rows: {eval_rows} wanted, and {dataset_version} has {kept} validation rows")
    if not rewards:
        raise ContractError("rewards: a run needs at least one")
    names = [reward.name for reward in rewards]
    if len(set(names)) < len(names):
        raise ContractError("rewards: two components have the same name, and TRL would merge them silently")
