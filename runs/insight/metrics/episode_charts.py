"""The charts of episodes, tools and the gateway, for runs that have them.

Charts of tools and turns have a line for each reported metric, so they appear after the first step.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from functools import partial

from runs.insight.metrics.chart_spec import Chart, ChartGroup, ChartLine, lines_of
from workers.contract.run import gateway
from workers.contract.run.episodes import (
    CALLS,
    EPISODES_CUT,
    FAILURES,
    MAX_TURNS_CHARTED,
    SECONDS_P95,
    TOOL_SHARE,
    TURNS_MAX,
    TURNS_MEAN,
    tool_metric,
    turn_reward,
)
from workers.contract.run.spec import RunSpec

_TOOL = re.compile(r"tools/(.+)/calls")
_single = partial(Chart.single, zero=True)


def tool_names(names: Collection[str]) -> list[str]:
    return sorted(match[1] for name in names if (match := _TOOL.fullmatch(name)))


def of_episodes(spec: RunSpec, names: Collection[str]) -> Iterator[ChartGroup]:
    """Plan the charts of a run's episodes. `names` are the metrics reported so far."""

    def shown(charts: Iterable[Chart], *, planned: bool) -> tuple[Chart, ...]:
        return tuple(chart for chart in charts if planned or any(line.metric in names for line in chart.lines))

    if charts := shown(_episodes(), planned=spec.episodes is not None):
        yield ChartGroup("Episodes", (*charts, *_turn_rewards(names)))
    if charts := (*shown(_calls(), planned=False), *_tools(names)):
        yield ChartGroup("Tools", charts)
    is_driven = spec.episodes is not None and spec.episodes.gateway is not None
    if charts := shown(_gateway(), planned=is_driven):
        yield ChartGroup("Gateway", charts)


def _episodes() -> Iterator[Chart]:
    turns = (ChartLine(TURNS_MAX, "max", "c5"), ChartLine(TURNS_MEAN, "mean", "c1"))
    yield Chart("turns", "Turns per episode", turns, zero=True, help="The model's messages in one episode")
    hint = "Share of episodes truncated by a limit on turns, time or length"
    yield _single("episodes-cut", "Episodes truncated", EPISODES_CUT, "truncated", "c6", format="percent", help=hint)
    hint = "Share of the episodes' tokens that the model didn't write, which carry no loss"
    yield _single("tool-share", "Length taken by tools", TOOL_SHARE, "by tools", "c2", format="percent", help=hint)
    hint = "95% of episodes took less, including the model's time"
    yield _single("episode-seconds", "Time per episode", SECONDS_P95, "p95", "c1", format="seconds", help=hint)


def _turn_rewards(names: Collection[str]) -> Iterator[Chart]:
    numbers = range(1, MAX_TURNS_CHARTED + 1)
    if lines := lines_of(((turn_reward(number), f"turn {number}") for number in numbers), names):
        hint = "Mean reward of the nth turn of all episodes that have one; fewer episodes have late turns"
        yield Chart("turn-rewards", "Reward per turn", lines, help=hint)


def _calls() -> Iterator[Chart]:
    yield _single("calls", "Calls per episode", CALLS, "calls", "c1")
    hint = "Share of all calls that returned an error instead of a result"
    yield _single("calls-failed", "Failed calls", FAILURES, "failed", "c6", format="percent", help=hint)


def _tools(names: Collection[str]) -> Iterator[Chart]:
    tools = tool_names(names)
    for id_, title, figure, unit, hint in (
        ("tool-calls", "Calls per episode, by tool", "calls", "number", ""),
        ("tool-failed", "Failed calls, by tool", "failed", "percent", "Share of a tool's calls that failed"),
        ("tool-p50", "Time per call, p50", "p50_s", "seconds", "Half of a tool's calls took less"),
        ("tool-p95", "Time per call, p95", "p95_s", "seconds", "95% of a tool's calls took less"),
    ):
        if lines := lines_of(((tool_metric(tool, figure), tool) for tool in tools), names):
            yield Chart(id_, title, lines, format=unit, zero=True, help=hint)


def _gateway() -> Iterator[Chart]:
    hint = "Requests per step from the programs that drive episodes"
    yield _single("gateway-requests", "Requests", gateway.REQUESTS, "requests", "c1", help=hint)
    yield _single("gateway-latency", "Time per request, p95", gateway.LATENCY_P95, "p95", "c1", format="seconds")
    hint = "Time for which a step waited until its episodes ended"
    yield _single(
        "gateway-waiting", "Waiting for episodes", gateway.WAITING, "waiting", "c2", format="seconds", help=hint
    )
    lines = (ChartLine(gateway.WAITS_S, "waiting", "c2"), ChartLine(gateway.QUIET_S, "without any request", "c6"))
    hint = "Time for which the trainer has waited so far for the step's episodes"
    yield Chart("gateway-waits", "Current wait", lines, format="seconds", zero=True, help=hint)
    hint = "Sessions in which an agent has a task"
    yield _single("gateway-sessions", "Open sessions", gateway.SESSIONS_OPEN, "open", "c1", help=hint)
    hint = "Sessions whose program disconnected before they ended"
    yield _single("gateway-gone", "Abandoned sessions", gateway.GONE, "abandoned", "c6", help=hint)
    hint = "Average number of policy updates between sampling a token and training on it"
    yield _single("gateway-staleness", "Staleness", gateway.STALENESS, "mean", "c1", help=hint)
