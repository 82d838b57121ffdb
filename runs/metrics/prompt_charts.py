"""The charts of a run that chooses its prompts: groups replaced, what that costs, and the weights of its prompts."""

from __future__ import annotations

from collections.abc import Iterator

from runs.metrics.chart_spec import Chart, ChartLine
from workers.contract import RunSpec, prompts


def of(spec: RunSpec) -> Iterator[Chart]:
    if spec.prompts.extra_rounds:
        yield from _replaced(spec)
    if spec.prompts.by_difficulty:
        weights = (
            ChartLine(prompts.WEIGHT_HIGH, "high", "c5"),
            ChartLine(prompts.WEIGHT_MEDIAN, "median", "c1"),
            ChartLine(prompts.WEIGHT_LOW, "low", "c2"),
        )
        hint = "How often prompts are drawn, beside 1 for the one that teaches most: 90th, 50th and 10th percentile"
        yield Chart("prompt-weights", "Weights of the prompts", weights, zero=True, help=hint)
    seen = (ChartLine(prompts.SEEN, "seen", "c3"),)
    yield Chart("prompts-seen", "Prompts seen", seen, format="percent", zero=True, help="Of the training prompts")
    reward = (ChartLine(prompts.MEAN_REWARD, "reward", "c8"),)
    hint = "Mean over the prompts seen, each once, of what they gave lately: replaced groups count too"
    yield Chart("prompts-reward", "Reward of all prompts seen", reward, help=hint)


def _replaced(spec: RunSpec) -> Iterator[Chart]:
    of = f"the component {spec.prompts.spread_in}" if spec.prompts.spread_in else "the total reward"
    groups = (ChartLine(prompts.DRAWN_WITHOUT, "drawn", "c3"), ChartLine(prompts.WITHOUT_SPREAD, "trained on", "c6"))
    hint = f"Share without spread in {of}: of the groups drawn, and of those trained on after replacement"
    yield Chart("prompts-replaced", "Without spread, before and after", groups, format="percent", zero=True, help=hint)
    tokens = (ChartLine(prompts.EXTRA_TOKENS, "tokens", "c2"),)
    hint = "Completion tokens of each generation's extra rounds, used or not"
    yield Chart("prompts-extra", "Extra generation", tokens, format="tokens", zero=True, help=hint)
    rounds = (ChartLine(prompts.EXTRA_ROUNDS, "rounds", "c2"),)
    hint = f"Of each generation, at most {spec.prompts.extra_rounds}"
    yield Chart("prompts-rounds", "Extra rounds", rounds, zero=True, help=hint)
    effective = (ChartLine(prompts.EFFECTIVE, "prompts", "c1"),)
    hint = "Prompts of each generation whose group has spread"
    yield Chart("prompts-effective", "Effective prompts", effective, zero=True, help=hint)
