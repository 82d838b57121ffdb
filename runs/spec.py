"""From catalogue rows to the frozen spec: what is edited tomorrow can't change a run of yesterday."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controlplane.datasets.models import DatasetVersion
from controlplane.hardware.models import HardwareProfile, Host
from controlplane.rewards.models import SUM_THEN_NORMALIZE, RewardVersion
from runs.models import Priority, ProfileTrial, Run
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


@dataclass(frozen=True)
class LaunchRequest:
    """What a person chose for a run, with the catalogue's rows. What isn't chosen yet keeps a spec from being made."""

    name: str = ""
    model: ModelSpec | str = ""
    host: Host | None = None
    """None: any that fits."""
    dataset_version: DatasetVersion | None = None
    reward_version: RewardVersion | None = None
    profile: HardwareProfile | None = None
    grpo: Mapping[str, Any] = field(default_factory=dict)
    lora: LoraSpec | None = None
    attn_implementation: str | None = None
    eval_rows: int = 0
    priority: int = Priority.NORMAL
    kind: str = "train"
    trial: ProfileTrial | None = None

    def chosen(self) -> tuple[DatasetVersion, RewardVersion, HardwareProfile]:
        """Raises ContractError while one of them isn't."""
        if self.dataset_version is None or self.reward_version is None or self.profile is None:
            raise ContractError("a run needs a dataset, rewards and a hardware profile")
        return self.dataset_version, self.reward_version, self.profile


def freeze(request: LaunchRequest, run_id: str) -> RunSpec:
    """Raises ContractError, naming the field, for rows that don't make a spec."""
    dataset_version, reward_version, profile = request.chosen()
    parts = reward_version.components
    rewards = tuple(from_dict(RewardSpec, part, at=f"rewards[{i}]") for i, part in enumerate(parts))
    _check(dataset_version, rewards, request.eval_rows)
    spec = RunSpec(
        run_id=run_id,
        name=request.name,
        kind=request.kind,
        model=ModelSpec(path=request.model) if isinstance(request.model, str) else request.model,
        data=DataSpec(
            name=dataset_version.dataset.name,
            version=dataset_version.number,
            sha256=dataset_version.sha256,
            rows=dataset_version.rows,
            eval_rows=request.eval_rows,
        ),
        rewards=rewards,
        hardware=from_dict(HardwareSpec, {**profile.spec, "profile": profile.name}, at="hardware"),
        grpo=with_aggregation(reward_version, request.grpo),
        lora=request.lora,
        attn_implementation=request.attn_implementation or None,
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
