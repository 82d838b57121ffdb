"""What the run page draws is told by the frozen spec."""

from __future__ import annotations

from typing import Any

from runs import charts
from workers.contract import DataSpec, HardwareSpec, ModelSpec, RewardSpec, Rollout, RunSpec


def a_spec(rollout: Rollout = Rollout.TRANSFORMERS, **grpo: Any) -> RunSpec:
    return RunSpec(
        run_id="r1",
        name="one",
        kind="train",
        model=ModelSpec("tiny"),
        data=DataSpec("sums", 1, "0", 10),
        rewards=(RewardSpec("format", "think_tags"), RewardSpec("right", "numeric_match", 2.0)),
        hardware=HardwareSpec("CPU", rollout),
        grpo=grpo,
    )


def found(groups: list[charts.Group]) -> dict[str, charts.Chart]:
    return {chart.id: chart for group in groups for chart in group.charts}


def test_kl_is_drawn_only_where_the_trainer_logs_it() -> None:
    assert "kl" not in found(charts.plan(a_spec()))
    assert "kl" in found(charts.plan(a_spec(beta=0.04)))
    notes = {tile.metric: tile.note for tile in charts.tiles(a_spec())}
    assert notes["kl"] == "off: β is 0"


def test_a_ratio_that_is_one_by_construction_says_so() -> None:
    assert "one update per batch" in found(charts.plan(a_spec()))["ratio"].note
    assert "one update per batch" in found(charts.plan(a_spec(gradient_accumulation_steps=4)))["ratio"].note
    assert found(charts.plan(a_spec(num_iterations=2)))["ratio"].note == ""
    assert found(charts.plan(a_spec(steps_per_generation=4)))["clip"].note == ""


def test_the_clip_fraction_goes_by_the_name_that_the_loss_gives_it() -> None:
    assert found(charts.plan(a_spec(loss_type="cispo")))["clip"].lines[0].metric == "cispo_clip_ratio"
    assert "clip" not in found(charts.plan(a_spec(loss_type="sapo")))
    assert {tile.label: tile.note for tile in charts.tiles(a_spec(loss_type="sapo"))}["Clipped"]


def test_each_reward_component_has_a_chart_and_a_colour_of_its_own() -> None:
    plan = found(charts.plan(a_spec()))
    colours = {plan["reward-0"].lines[0].colour, plan["reward-1"].lines[0].colour}
    assert plan["reward-1"].lines[0].metric == "rewards/right/mean"
    assert len(colours) == 2


def test_gpus_are_drawn_where_there_are_some_and_the_host_where_there_are_none() -> None:
    assert "host-memory" in found(charts.plan(a_spec()))
    with_gpus = found(charts.plan(a_spec(), gpus=(2, 5)))
    assert [line.label for line in with_gpus["gpu-memory"].lines] == ["GPU 2", "GPU 5"]
    assert "host-memory" not in with_gpus


def test_the_gap_to_vllm_is_drawn_only_with_vllm() -> None:
    assert "sampling-gap" not in found(charts.plan(a_spec()))
    assert "sampling-gap" in found(charts.plan(a_spec(Rollout.SERVER)))


def test_derived_figures_ask_for_the_metric_that_they_come_from() -> None:
    names = charts.metrics(charts.plan(a_spec()))
    assert "num_tokens" in names
    assert "tokens_per_second" not in names
    assert len(names) == len(set(names))
