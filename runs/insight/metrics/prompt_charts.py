"""The charts of a run that chooses its prompts: replaced groups, their cost, and how much its prompts teach."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from runs.insight.metrics.chart_spec import Chart, ChartLine
from workers.contract.run import prompts
from workers.contract.run.spec import RunSpec


def of(spec: RunSpec) -> Iterator[Chart]:
    if spec.prompts.extra_rounds:
        yield from _replaced(spec)
    hint = "Shares of the training prompts: known to teach, by their recent groups; known to teach little; never seen"
    yield _by_kind("prompts-known", "What the prompts teach", prompts.share_of_prompts, hint)
    if spec.prompts.by_difficulty:
        hint = "Shares of the next draws, by weight"
        yield _by_kind("prompts-drawn", "Drawn prompts", prompts.share_of_draws, hint)
    reward = (ChartLine(prompts.MEAN_REWARD, "reward", "c8"),)
    hint = "Mean of the recent rewards of all prompts seen, each counted once; includes replaced groups"
    yield Chart("prompts-reward", "Reward of all prompts seen", reward, help=hint)


def _by_kind(name: str, title: str, metric: Callable[[str], str], hint: str) -> Chart:
    lines = (
        ChartLine(metric(prompts.TEACH), "teach", "c3"),
        ChartLine(metric(prompts.TEACH_LITTLE), "little", "c6"),
        ChartLine(metric(prompts.UNSEEN), "unseen", "c8"),
    )
    return Chart(name, title, lines, format="percent", zero=True, help=hint, stack=True)


def _replaced(spec: RunSpec) -> Iterator[Chart]:
    of = f"the component {spec.prompts.spread_in}" if spec.prompts.spread_in else "the total reward"
    groups = (ChartLine(prompts.DRAWN_WITHOUT, "before", "c3"), ChartLine(prompts.WITHOUT_SPREAD, "after", "c6"))
    hint = f"Share of groups without spread in {of}: among those drawn, and among those trained on after replacement"
    yield Chart("prompts-replaced", "Without spread, before and after", groups, format="percent", zero=True, help=hint)
    tokens = (ChartLine(prompts.EXTRA_TOKENS, "tokens", "c2"),)
    hint = "Completion tokens of each generation's extra rounds, used or not"
    yield Chart("prompts-extra", "Extra generation", tokens, format="tokens", zero=True, help=hint)
    rounds = (ChartLine(prompts.EXTRA_ROUNDS, "rounds", "c2"),)
    hint = f"Extra rounds of each generation, at most {spec.prompts.extra_rounds}"
    yield Chart("prompts-rounds", "Extra rounds", rounds, zero=True, help=hint)
    effective = (ChartLine(prompts.EFFECTIVE, "prompts", "c1"),)
    hint = "Prompts of each generation whose group has spread"
    yield Chart("prompts-effective", "Effective prompts", effective, zero=True, help=hint)
