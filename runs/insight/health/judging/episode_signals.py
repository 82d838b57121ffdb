"""Signals of the rules about episodes."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from controlplane.platform.templatetags.figures import duration, significant
from runs.insight.health.history import ROLL, History, MetricHistory, noise, rolling_mean
from runs.insight.health.judging.episode_rules import GROUPS_MINUTES
from runs.insight.health.judging.signal import Of, Signal, highest, mean
from runs.insight.metrics.episode_charts import tool_names
from workers.contract.run import gateway
from workers.contract.run.episodes import CALLS, CUT, TURNS_MEAN, tool_metric

WINDOW = 10
FEWEST_CALLS = 20
"""Calls in a window that a share needs at least."""
STILL = 60
"""Generations in which a learning run's reward rises."""
RISEN = 2.0
"""A rise is significant from this many standard errors on."""


def _failing(history: History, tool: str) -> Signal | None:
    """The share of a tool's calls that fail, with steps weighted by their calls."""
    calls, failed = history.get(tool_metric(tool, "calls")), history.get(tool_metric(tool, "failed"))
    if calls is None or failed is None:
        return None
    steps, of_calls, of_failed = np.intersect1d(calls.step, failed.step, return_indices=True)
    if len(steps) < WINDOW:
        return None
    count = calls.value[of_calls] * max(history.config.completions, 1)
    called = rolling_mean(count, WINDOW)
    failures = rolling_mean(count * failed.value[of_failed], WINDOW)
    enough = called * WINDOW >= FEWEST_CALLS
    share = np.where(enough, failures / np.maximum(called, 1e-9), 0.0)
    words = {"tool": f"“{tool}”", "tool_name": tool, "tool_quoted": quote(tool)}
    return Signal(steps[WINDOW - 1 :], share, words)


def _tool_spam(history: History) -> Signal | None:
    """Calls as a share of the allowed maximum; 0 while the reward rises."""
    calls, turns, reward = (history.get(name, STILL + ROLL + 1) for name in (CALLS, TURNS_MEAN, "reward"))
    config = history.config
    if calls is None or turns is None or reward is None or not config.call_limit:
        return None
    size = min(len(calls), len(turns), len(reward))
    in_calls, in_turns = (rolling_mean(column.value[-size:], WINDOW) for column in (calls, turns))
    # With one call per turn, a call in every turn but the last is normal.
    most = in_turns * config.call_limit if config.call_limit > 1 else np.full_like(in_turns, config.turn_limit)
    still = _still(reward, size)
    share = (in_calls / np.maximum(most, 1e-9))[-len(still) :]
    words = {"calls": significant(float(in_calls[-1])), "turns": significant(float(in_turns[-1]))}
    return Signal(calls.step[-len(still) :], np.where(still, share, 0.0), words)


def _still(reward: MetricHistory, size: int) -> NDArray[np.bool_]:
    """True for each of the newest generations in whose last STILL ones the reward has not risen."""
    means = rolling_mean(reward.value[-size:], ROLL)
    error = noise(reward.value) / np.sqrt(ROLL) * np.sqrt(2)
    still: NDArray[np.bool_] = means[STILL:] - means[:-STILL] <= RISEN * error
    return still


def _no_agents(history: History) -> Signal | None:
    waits = _waits(history)
    if waits is None:
        return None
    return _minutes(history, waits.quiet_s, waited=duration(waits.seconds), quiet=duration(waits.quiet_s))


def _no_groups(history: History) -> Signal | None:
    waits = _waits(history)
    if waits is None:
        return None
    asked = f"No environment has requested a completion for {duration(waits.quiet_s)}."
    if waits.seconds - GROUPS_MINUTES * 60 > waits.quiet_s:
        asked = "Environments request completions, but their groups fill no batch."
    value = max(waits.quiet_s, waits.seconds - GROUPS_MINUTES * 60)
    return _minutes(history, value, waited=duration(waits.seconds), asked=asked)


class _Waits(NamedTuple):
    seconds: float
    quiet_s: float


def _waits(history: History) -> _Waits | None:
    """The trainer's current wait for the programs that drive its episodes; None: unknown, or it has ended."""
    waits, quiet = history.get(gateway.WAITS), history.get(gateway.QUIET)
    if waits is None or quiet is None or not history.quiet_s:
        return None
    return _Waits(float(waits.value[-1]), float(quiet.value[-1]))


def _minutes(history: History, seconds: float, **words: str) -> Signal:
    return Signal(np.array([history.step]), np.array([seconds / 60]), words)


OF: dict[str, Of] = {
    "tools_failing": lambda history: highest(
        _failing(history, tool) for tool in tool_names(history.known | set(history.columns))
    ),
    "tools_unused": mean(CALLS, window=ROLL),
    "tool_spam": _tool_spam,
    "episodes_cut": mean(CUT, window=WINDOW),
    "no_agents": _no_agents,
    "no_groups": _no_groups,
}
