"""What the run page draws is told by the frozen spec, and by what the run has told so far."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from runs.engine.models import Attempt, Run
from runs.insight.metrics import run_charts
from runs.insight.metrics.chart_spec import Chart, ChartGroup
from tests.runs.builders import ONE_GPU, a_host, a_run
from workers.contract.run.episodes import EpisodeSpec, GatewaySpec
from workers.contract.run.hardware import HardwareSpec, Rollout
from workers.contract.run.spec import DataSpec, ModelSpec, RewardSpec, RunSpec


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


def with_rewards(count: int) -> RunSpec:
    rewards = tuple(RewardSpec(f"component {i} {'with a long name ' * 10}", "think_tags") for i in range(count))
    return dataclasses.replace(a_spec(), rewards=rewards)


def found(groups: list[ChartGroup]) -> dict[str, Chart]:
    return {chart.id: chart for group in groups for chart in group.charts}


def test_kl_is_drawn_only_where_the_trainer_logs_it() -> None:
    assert "kl" not in found(run_charts.plan(a_spec()))
    assert "kl" in found(run_charts.plan(a_spec(beta=0.04)))
    notes = {tile.metric: tile.note for tile in run_charts.tiles(a_spec())}
    assert notes["kl"] == "off: β is 0"


def test_a_ratio_that_is_one_by_construction_says_so() -> None:
    assert "one update per batch" in found(run_charts.plan(a_spec()))["ratio"].note
    assert "one update per batch" in found(run_charts.plan(a_spec(gradient_accumulation_steps=4)))["ratio"].note
    assert found(run_charts.plan(a_spec(num_iterations=2)))["ratio"].note == ""
    assert found(run_charts.plan(a_spec(steps_per_generation=4)))["clip"].note == ""
    assert found(run_charts.plan(a_spec(generation_batch_size=32)))["clip"].note == ""  # four batches of TRL's 8


def test_the_clip_fraction_goes_by_the_name_that_the_loss_gives_it() -> None:
    assert found(run_charts.plan(a_spec(loss_type="cispo")))["clip"].lines[0].metric == "cispo_clip_ratio"
    assert "clip" not in found(run_charts.plan(a_spec(loss_type="sapo")))
    assert {tile.label: tile.note for tile in run_charts.tiles(a_spec(loss_type="sapo"))}["Clipped"]


def test_the_other_rewards_of_evaluations_have_charts() -> None:
    assert "other-reward" not in found(run_charts.plan(a_spec()))
    spec = dataclasses.replace(a_spec(), eval_rewards=(RewardSpec("short", "length"),))
    plan = found(run_charts.plan(spec))
    lines = [line.metric for name in ("other-reward", "other-rewards") for line in plan[name].lines]
    assert lines == ["eval_other_reward", "eval_rewards/short/mean"]


def test_each_reward_component_has_a_chart_and_a_colour_of_its_own() -> None:
    plan = found(run_charts.plan(a_spec()))
    colours = {plan["reward-0"].lines[0].colour, plan["reward-1"].lines[0].colour}
    assert plan["reward-1"].lines[0].metric == "rewards/right/mean"
    assert len(colours) == 2


def test_a_reward_has_the_range_of_its_values_and_the_total_that_of_the_weighted_sum() -> None:
    plan = found(run_charts.plan(a_spec()))
    ranges = [(line.low, line.high) for line in (plan["reward"].lines[0], plan["reward-1"].lines[0])]
    assert ranges == [(0.0, 3.0), (0.0, 1.0)]
    rewards = (RewardSpec("format", "think_tags"), RewardSpec("model", "no such function"))
    line = found(run_charts.plan(dataclasses.replace(a_spec(), rewards=rewards)))["reward"].lines[0]
    assert (line.low, line.high) == (None, None)


def test_every_gpu_is_drawn_where_there_are_some_and_the_host_always() -> None:
    without = found(run_charts.plan(a_spec()))
    assert {"host-memory", "host-cpu"} <= without.keys()
    assert "gpu-memory" not in without
    with_gpus = found(run_charts.plan(a_spec(), gpus=(2, 5)))
    for chart in ("gpu-memory", "gpu-use", "gpu-power", "gpu-temperature"):
        assert [line.label for line in with_gpus[chart].lines] == ["GPU 2", "GPU 5"]
    assert {"host-memory", "host-cpu", "rank-memory"} <= with_gpus.keys()


def test_a_trainers_peak_that_torch_counts_wrong_is_not_drawn_and_a_note_says_why() -> None:
    hardware = HardwareSpec("p", Rollout.COLOCATE, trainer_gpus=1, colocate_sleep=True)
    charts = found(run_charts.plan(dataclasses.replace(a_spec(), hardware=hardware), gpus=(0,)))
    assert "rank-memory" not in charts
    assert "sleeping vLLM" in charts["gpu-memory"].note


def test_the_gap_to_vllm_is_drawn_only_with_vllm() -> None:
    assert "sampling-gap" not in found(run_charts.plan(a_spec()))
    assert "sampling-gap" in found(run_charts.plan(a_spec(Rollout.SERVER)))
    off = found(run_charts.plan(a_spec(Rollout.COLOCATE, vllm_importance_sampling_correction=False)))
    assert "is off" in off["sampling-gap"].note


def test_a_vllm_that_sleeps_between_batches_is_not_asked_whether_it_has_the_weights() -> None:
    assert not found(run_charts.plan(a_spec(Rollout.COLOCATE)))["sync-followed"].note
    sleeping = HardwareSpec("p", Rollout.COLOCATE, trainer_gpus=1, colocate_sleep=True)
    charts = found(run_charts.plan(dataclasses.replace(a_spec(), hardware=sleeping)))
    assert "sleeps between batches" in charts["sync-followed"].note


def test_a_servers_own_figures_are_drawn_only_where_there_is_a_server() -> None:
    of_server = found(run_charts.plan(a_spec(Rollout.SERVER)))
    assert {"vllm-requests", "vllm-cache", "vllm-prefix", "vllm-tokens"} <= of_server.keys()
    assert "vllm-requests" not in found(run_charts.plan(a_spec(Rollout.COLOCATE)))
    assert "time/weight_sync_s" in {line.metric for line in of_server["step-split"].lines}
    assert "time/weight_sync_s" not in {line.metric for line in found(run_charts.plan(a_spec()))["step-split"].lines}


def test_the_weighted_components_have_a_chart_of_their_own() -> None:
    weighted = found(run_charts.plan(a_spec()))["weighted"]
    assert [(line.label, line.weight) for line in weighted.lines] == [("format", 1.0), ("right", 2.0)]
    assert "weighted" not in found(run_charts.plan(with_rewards(1)))


def test_rewards_that_failed_share_a_chart_once_the_run_tells_of_them() -> None:
    assert "failed" not in found(run_charts.plan(a_spec()))
    names = ["rewards/format/failed", "rewards/right/failed", "rewards/right/mean"]
    plan = run_charts.plan(a_spec(), names=names)
    assert [(line.metric, line.label) for line in found(plan)["failed"].lines] == [
        ("rewards/format/failed", "format"),
        ("rewards/right/failed", "right"),
    ]
    assert run_charts.unplanned_charts(names, plan) == []


def test_thirty_components_with_long_names_are_folded_away_behind_the_chart_of_all() -> None:
    groups = run_charts.plan(with_rewards(30))
    detail = next(group for group in groups if group.title == "Reward components")
    assert len(detail.charts) == 30
    assert detail.folded
    assert [chart.id for chart in groups[0].charts] == ["reward", "weighted", "zero-spread"]
    assert len({chart.id for group in groups for chart in group.charts}) == sum(len(g.charts) for g in groups)
    assert json.loads(json.dumps(run_charts.as_json(groups)))[0]["group"] == "Reward"


def test_what_nobody_foresaw_has_a_chart_with_those_whose_names_begin_alike() -> None:
    planned = run_charts.plan(a_spec())
    names = ["kl", "lane/b", "lane/a", "reward", "epoch", "num_tokens", "vllm/odd", "<b>/x", "reward_std"]
    (group,) = run_charts.unplanned_charts(names, planned)
    other = {chart.title: chart for chart in group.charts}
    assert other.keys() == {"kl", "lane", "vllm/odd", "<b>/x"}
    assert [line.label for line in other["lane"].lines] == ["a", "b"]
    assert (other["kl"].x, other["vllm/odd"].x) == ("step", "time")
    assert all(chart.id.replace("-", "").isalnum() for chart in other.values())


def test_metrics_have_the_words_of_the_charts() -> None:
    planned = run_charts.plan(a_spec())
    (other,) = run_charts.unplanned_charts(["clip_ratio/high_max", "lane/a"], planned)
    words = run_charts.labels([*planned, other])
    assert words["clip_ratio/high_mean"] == "Clipped tokens: high"
    assert words["clip_ratio/high_max"] == "Clipped tokens: high max"
    assert words["eval_reward"] == "Reward, total, on held-out rows"
    assert (words["rewards/format/mean"], words["lane/a"]) == ("format", "lane/a")


def test_many_unforeseen_metrics_of_one_family_fill_several_charts() -> None:
    names = [f"depth/of/layer {i} {'x' * 150}" for i in range(20)] + ["a.b", "a,b", "a-b"]
    (group,) = run_charts.unplanned_charts(names)
    other = group.charts
    assert [len(chart.lines) for chart in other if chart.title.startswith("depth")] == [8, 8, 4]
    assert len({chart.id for chart in other}) == len(other) == 6


@pytest.mark.django_db
@pytest.mark.usefixtures("sent")
def test_a_run_that_was_moved_by_a_resume_keeps_the_charts_of_its_earlier_gpus() -> None:
    run = a_run(host=a_host(gpus=4), hardware=ONE_GPU)
    Attempt.objects.filter(run=run).update(placement={"host": "box", "gpus": [3]}, status="failed")
    Attempt.objects.create(
        id=f"{run.pk}-2", run=run, number=2, status="running", placement={"host": "other", "gpus": [0, 1]}
    )
    assert run_charts.gpus_of(run) == (0, 1, 3)
    Attempt.objects.filter(run=run).update(placement=None)
    assert run_charts.gpus_of(Run.objects.get()) == ()


def test_raw_metrics_of_evaluations_are_folded_away_from_a_persons_own() -> None:
    groups = run_charts.unplanned_charts(["eval_kl", "my_own/figure"], run_charts.plan(a_spec()))
    assert [(group.title, group.folded, [chart.title for chart in group.charts]) for group in groups] == [
        ("Other", False, ["my_own/figure"]),
        ("Other evaluation metrics", True, ["eval_kl"]),
    ]


@pytest.mark.django_db
@pytest.mark.usefixtures("sent")
def test_the_numbers_of_a_run_whose_spec_cant_be_read_are_drawn_all_the_same() -> None:
    run = a_run()
    Run.objects.update(spec={"schema": 99}, last_metrics={"reward": 0.5, "host/cpu_percent": 3.0, "kl": 0.1})
    run = Run.objects.get()
    assert [group.title for group in run_charts.plan_of(run)] == ["Machine", "Other"]
    assert {"reward", "kl", "host/cpu_percent"} <= set(run_charts.metrics(run_charts.plan_of(run)))


def test_derived_figures_ask_for_the_metric_that_they_come_from() -> None:
    names = run_charts.metrics(run_charts.plan(a_spec()))
    assert "num_tokens" in names
    assert "tokens_per_second" not in names
    assert len(names) == len(set(names))


def test_a_run_of_one_turn_has_no_charts_of_episodes() -> None:
    assert {group.title for group in run_charts.plan(a_spec())}.isdisjoint({"Episodes", "Tools", "Gateway"})


def test_episodes_have_charts_before_their_first_step_and_tools_after_it() -> None:
    spec = dataclasses.replace(a_spec(), episodes=EpisodeSpec())
    assert "turns" in found(run_charts.plan(spec))
    names = ["tools/search/calls", "tools/search/failed", "tools/search/p50_s", "tools/search/p95_s", "turns/2/reward"]
    plan = found(run_charts.plan(spec, names=names))
    assert [line.label for line in plan["tool-p95"].lines] == ["search"]
    assert [line.label for line in plan["turn-rewards"].lines] == ["turn 2"]
    assert run_charts.unplanned_charts(names, run_charts.plan(spec, names=names)) == []


def test_the_gateway_has_charts_where_programs_drive_the_episodes() -> None:
    driven = dataclasses.replace(a_spec(), episodes=EpisodeSpec(gateway=GatewaySpec()))
    assert "gateway-staleness" in found(run_charts.plan(driven))
    assert "gateway-staleness" not in found(run_charts.plan(dataclasses.replace(driven, episodes=EpisodeSpec())))


def test_each_figure_of_the_sources_has_a_chart_of_its_own() -> None:
    names = {
        f"sources/{source}/{figure}" for source in ("algebra", "a/b") for figure in ("reward", "length", "zero_spread")
    }
    plan = run_charts.plan(a_spec(), names=names)
    charts = {chart.id: chart for group in plan for chart in group.charts}
    for chart, figure in (("reward", "reward"), ("length", "length"), ("zero", "zero_spread")):
        lines = [(line.metric, line.label) for line in charts[f"{chart}-sources"].lines]
        assert lines == [(f"sources/{source}/{figure}", source) for source in ("a/b", "algebra")]
    assert run_charts.unplanned_charts(names, plan) == []
