"""The charts of episodes, tools and the gateway, for the runs that have them.

Charts of tools and turns have a line for each reported metric, so they appear with the first step.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from runs.insight.metrics.chart_spec import Chart, ChartGroup, ChartLine, colour
from workers.contract.run import gateway
from workers.contract.run.episodes import (
    CALLS,
    CUT,
    FAILURES,
    MOST_TURNS_CHARTED,
    SECONDS_P95,
    TOOL_SHARE,
    TURNS_MAX,
    TURNS_MEAN,
    tool_metric,
    turn_reward,
)
from workers.contract.run.spec import RunSpec

_TOOL = re.compile(r"tools/(.+)/calls")


def tool_names(names: Collection[str]) -> list[str]:
    """The names of the tools whose calls are among the metrics."""
    return sorted(match[1] for name in names if (match := _TOOL.fullmatch(name)))


def of_episodes(spec: RunSpec, names: Collection[str]) -> Iterator[ChartGroup]:
    """The chart groups of a run's episodes. `names`: the metrics that the run has reported."""
    planned = spec.episodes is not None
    if charts := tuple(chart for chart in _episodes() if planned or _reported(chart, names)):
        yield ChartGroup("Episodes", (*charts, *_turn_rewards(names)))
    if charts := (*(chart for chart in _calls() if _reported(chart, names)), *_tools(names)):
        yield ChartGroup("Tools", charts)
    driven = spec.episodes is not None and spec.episodes.gateway is not None
    if charts := tuple(chart for chart in _gateway() if driven or _reported(chart, names)):
        yield ChartGroup("Gateway", charts)


def _reported(chart: Chart, names: Collection[str]) -> bool:
    return any(line.metric in names for line in chart.lines)


def _episodes() -> Iterator[Chart]:
    turns = (ChartLine(TURNS_MAX, "max", "c5"), ChartLine(TURNS_MEAN, "mean", "c1"))
    yield Chart("turns", "Turns per episode", turns, zero=True, help="Messages of the model in one episode")
    cut = (ChartLine(CUT, "cut", "c6"),)
    hint = "Share of episodes cut by a limit of turns, time or length"
    yield Chart("episodes-cut", "Episodes cut", cut, format="percent", zero=True, help=hint)
    share = (ChartLine(TOOL_SHARE, "by tools", "c2"),)
    hint = "Share of the episodes' tokens that the model didn't write and that carry no loss"
    yield Chart("tool-share", "Length taken by tools", share, format="percent", zero=True, help=hint)
    seconds = (ChartLine(SECONDS_P95, "p95", "c1"),)
    hint = "95% of the episodes took less, including the model's own time"
    yield Chart("episode-seconds", "Time of an episode", seconds, format="seconds", zero=True, help=hint)


def _turn_rewards(names: Collection[str]) -> Iterator[Chart]:
    lines = tuple(
        ChartLine(metric, f"turn {number}", colour(number - 1))
        for number in range(1, MOST_TURNS_CHARTED + 1)
        if (metric := turn_reward(number)) in names
    )
    if lines:
        hint = "Mean reward of the episodes' turns of this number; fewer episodes have a late turn"
        yield Chart("turn-rewards", "Reward per turn", lines, help=hint)


def _calls() -> Iterator[Chart]:
    yield Chart("calls", "Calls per episode", (ChartLine(CALLS, "calls", "c1"),), zero=True)
    failed = (ChartLine(FAILURES, "failed", "c6"),)
    hint = "Share of all calls that returned an error instead of a result"
    yield Chart("calls-failed", "Failed calls", failed, format="percent", zero=True, help=hint)


def _tools(names: Collection[str]) -> Iterator[Chart]:
    tools = tool_names(names)
    for id_, title, what, unit, hint in (
        ("tool-calls", "Calls per episode, by tool", "calls", "number", ""),
        ("tool-failed", "Failed calls, by tool", "failed", "percent", "Share of a tool's calls that failed"),
        ("tool-p50", "Time of a call, p50", "p50_s", "seconds", "Half of a tool's calls took less"),
        ("tool-p95", "Time of a call, p95", "p95_s", "seconds", "95% of a tool's calls took less"),
    ):
        lines = tuple(
            ChartLine(metric, tool, colour(i))
            for i, tool in enumerate(tools)
            if (metric := tool_metric(tool, what)) in names
        )
        if lines:
            yield Chart(id_, title, lines, format=unit, zero=True, help=hint)


def _gateway() -> Iterator[Chart]:
    requests = (ChartLine(gateway.REQUESTS, "requests", "c1"),)
    yield Chart(
        "gateway-requests", "Requests", requests, zero=True, help="Per step, from the programs that drive episodes"
    )
    latency = (ChartLine(gateway.LATENCY_P95, "p95", "c1"),)
    yield Chart("gateway-latency", "Time of a request, p95", latency, format="seconds", zero=True)
    waiting = (ChartLine(gateway.WAITING, "waiting", "c2"),)
    hint = "Time that a step waited for its episodes to end"
    yield Chart("gateway-waiting", "Waiting for episodes", waiting, format="seconds", zero=True, help=hint)
    now = (ChartLine(gateway.WAITS, "waiting", "c2"), ChartLine(gateway.QUIET, "without any request", "c6"))
    hint = "Time that the trainer had waited so far for the step's episodes"
    yield Chart("gateway-waits", "Current wait", now, format="seconds", zero=True, help=hint)
    sessions = (ChartLine(gateway.SESSIONS_OPEN, "open", "c1"),)
    yield Chart("gateway-sessions", "Sessions open", sessions, zero=True, help="Sessions of agents with a task")
    gone = (ChartLine(gateway.GONE, "gone", "c6"),)
    yield Chart("gateway-gone", "Sessions gone", gone, zero=True, help="Sessions whose program left before their end")
    stale = (ChartLine(gateway.STALENESS, "mean", "c1"),)
    hint = "Average number of policy updates between sampling a token and training on it"
    yield Chart("gateway-staleness", "Staleness", stale, zero=True, help=hint)
