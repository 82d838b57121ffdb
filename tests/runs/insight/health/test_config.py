"""What a run's settings mean for its health: the totals that its rewards can reach."""

from __future__ import annotations

from runs.insight.health.config import config_of
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.spec import DataSpec, ModelSpec, RewardSpec, RunSpec


def spec(*rewards: RewardSpec) -> RunSpec:
    return RunSpec(
        run_id="r1",
        name="a run",
        kind="train",
        model=ModelSpec("a/model"),
        data=DataSpec("problems", 1, "0" * 64, 10, 0),
        rewards=rewards,
        hardware=HardwareSpec(profile="cpu"),
        grpo={},
    )


def test_totals_follow_the_rewards_parameters() -> None:
    right = RewardSpec("right", "numeric_match", 2.0)
    short = RewardSpec("short", "overlong", 1.0, {"punishment": -3.0})
    config = config_of(spec(right, short))
    assert (config.lowest, config.highest) == (-3.0, 2.0)
    assert config_of(spec(right, RewardSpec("short", "overlong", -1.0, {"punishment": -3.0}))).highest == 5.0


def test_a_reward_without_a_top_leaves_the_total_open() -> None:
    assert config_of(spec(RewardSpec("chars", "unique_chars"))).highest is None
    assert config_of(spec(RewardSpec("gone", "gone"))).highest is None
