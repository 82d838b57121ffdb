"""Health bounds, drawn as lines on the charts of the metrics that they apply to."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from runs.engine.models import Run
from runs.engine.spec import spec_of
from runs.insight.health.config import Config, config_of
from runs.insight.health.judging.rule import HealthRule
from runs.insight.health.judging.rules import RULES
from runs.insight.health.presets import RuleBounds, preset_of, value_text
from runs.insight.metrics import run_charts
from runs.insight.metrics.chart_spec import Chart, ChartBound, ChartGroup
from workers.contract.wire.documents import ContractError


def with_bounds(groups: Sequence[ChartGroup], run: Run) -> list[ChartGroup]:
    """Return the charts with the bounds of the run's preset, labelled as on the health card.

    Rules that are off, don't apply to the run, or judge something other than a metric's own value have no lines. This
    makes one query."""
    if run.kind != "train":
        return list(groups)
    try:
        config = config_of(spec_of(run), run_charts.gpus_of(run))
    except ContractError:  # a spec of another version is not judged
        return list(groups)
    preset = preset_of(run)
    rules = [(rule, preset.bounds(rule)) for rule in RULES if rule.drawn and not rule.unless(config)]
    return [replace(group, charts=tuple(_bounded(chart, rules, config) for chart in group.charts)) for group in groups]


def _bounded(chart: Chart, rules: Sequence[tuple[HealthRule, RuleBounds]], config: Config) -> Chart:
    lines: list[ChartBound] = []
    for rule, bounds in rules:
        names = {rule.also, *(rule.metric.format(gpu=gpu) for gpu in config.gpus or ("",))}
        judged_labels = [line.label for line in chart.lines if line.metric in names]
        if judged_labels:
            lines += _lines(rule, bounds, "" if len(judged_labels) == len(chart.lines) else f"{judged_labels[0]}: ")
    return replace(chart, bounds=tuple(lines))


def _lines(rule: HealthRule, bounds: RuleBounds, of: str) -> Iterator[ChartBound]:
    for level, bound in ((rule.mild, bounds.warning), ("bad", bounds.bad)):
        if bound is not None:
            sides = {"above" if rule.above else "below": bound}
            if rule.around is not None:
                sides = {"below": rule.around - bound, "above": rule.around + bound}
            for side, value in sides.items():
                yield ChartBound(value, f"{of}{level} {side} {value_text(value, rule.format)}", level)
