"""Signals of the health rules about episodes."""

from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from controlplane.platform.templatetags.figures import duration, significant
from runs.insight.health.history import ROLL, History, MetricHistory, noise, rolling_mean
from runs.insight.health.judging.episode_rules import GROUPS_MINUTES
from runs.insight.health.judging.shapes import slope_errors
from runs.insight.health.judging.signal import Signal, SignalReader, highest, mean
from runs.insight.metrics.episode_charts import tool_names
from workers.contract.run import gateway
from workers.contract.run.episodes import CALLS, EPISODES_CUT, TURNS_MEAN, tool_metric

WINDOW = 10
MIN_CALLS = 20
STILL_GENERATIONS = 60
"""Number of generations within which a learning run's reward rises."""
FALL_ERRORS, FALL_SHARE = 5.5, 0.9
"""Standard errors of a falling share of failures, and its share of the highest, from which a model is learning to
call."""
RISE_ERRORS = 2.0
"""Number of standard errors from which a rise is significant."""


def _failing(history: History, tool: str) -> Signal | None:
    """Compute the share of a tool's calls that fail, weighting steps by their number of calls."""
    calls, failed = history.get(tool_metric(tool, "calls")), history.get(tool_metric(tool, "failed"))
    if calls is None or failed is None:
        return None
    steps, of_calls, of_failed = np.intersect1d(calls.step, failed.step, return_indices=True)
    if len(steps) < WINDOW:
        return None
    count = calls.value[of_calls] * max(history.config.completions, 1)
    called = rolling_mean(count, WINDOW)
    failures = rolling_mean(count * failed.value[of_failed], WINDOW)
    has_enough_calls = called * WINDOW >= MIN_CALLS
    share = np.where(has_enough_calls, failures / np.maximum(called, 1e-9), 0.0)
    if -slope_errors(share[-STILL_GENERATIONS:]) > FALL_ERRORS and share[-1] < FALL_SHARE * share.max():
        share = np.zeros(len(share))
    fields = {"tool": f"“{tool}”", "tool_name": tool, "tool_quoted": quote(tool)}
    return Signal(steps[WINDOW - 1 :], share, fields)


def _tool_spam(history: History) -> Signal | None:
    """Compute calls as a share of the allowed maximum, or 0 while the reward is rising."""
    calls, turns, reward = (history.get(name, STILL_GENERATIONS + ROLL + 1) for name in (CALLS, TURNS_MEAN, "reward"))
    config = history.config
    if calls is None or turns is None or reward is None or not config.call_limit:
        return None
    size = min(len(calls), len(turns), len(reward))
    in_calls, in_turns = (rolling_mean(column.value[-size:], WINDOW) for column in (calls, turns))
    # With one call per turn, a call in every turn but the last is normal.
    allowed = in_turns * config.call_limit if config.call_limit > 1 else np.full_like(in_turns, config.turn_limit)
    not_rising = _has_not_risen(reward, size)
    share = (in_calls / np.maximum(allowed, 1e-9))[-len(not_rising) :]
    fields = {"calls": significant(float(in_calls[-1])), "turns": significant(float(in_turns[-1]))}
    return Signal(calls.step[-len(not_rising) :], np.where(not_rising, share, 0.0), fields)


def _has_not_risen(reward: MetricHistory, size: int) -> NDArray[np.bool_]:
    """Return for each of the newest generations whether the reward has not risen for STILL_GENERATIONS."""
    means = rolling_mean(reward.value[-size:], ROLL)
    error = noise(reward.value) / np.sqrt(ROLL) * np.sqrt(2)
    not_rising: NDArray[np.bool_] = means[STILL_GENERATIONS:] - means[:-STILL_GENERATIONS] <= RISE_ERRORS * error
    return not_rising


def _no_agents(history: History) -> Signal | None:
    if (wait_times := _waits(history)) is None:
        return None
    waited_s, quiet_s = wait_times
    return _minutes(history, quiet_s, waited=duration(waited_s), quiet=duration(quiet_s))


def _no_groups(history: History) -> Signal | None:
    if (wait_times := _waits(history)) is None:
        return None
    waited_s, quiet_s = wait_times
    sentence, counted_s = f"No environment has requested a completion for {duration(quiet_s)}.", quiet_s
    if (overdue := waited_s - GROUPS_MINUTES * 60) > quiet_s:
        sentence, counted_s = "Environments request completions, but their groups don't fill a batch.", overdue
    return _minutes(history, counted_s, waited=duration(waited_s), asked=sentence)


def _waits(history: History) -> tuple[float, float] | None:
    """Return the seconds that the trainer has waited for the programs that drive its episodes, and the seconds without
    a request from them, or None if unknown or if the trainer is no longer waiting."""
    waits, quiet = history.get(gateway.WAITS_S), history.get(gateway.QUIET_S)
    if waits is None or quiet is None or not history.quiet_s:
        return None
    return float(waits.value[-1]), float(quiet.value[-1])


def _minutes(history: History, seconds: float, **fields: str) -> Signal:
    return Signal(np.array([history.step]), np.array([seconds / 60]), fields)


SIGNALS: dict[str, SignalReader] = {
    "tools_failing": lambda history: highest(
        _failing(history, tool) for tool in tool_names(history.reported | set(history.columns))
    ),
    "tools_unused": mean(CALLS, window=ROLL),
    "tool_spam": _tool_spam,
    "episodes_cut": mean(EPISODES_CUT, window=WINDOW),
    "no_agents": _no_agents,
    "no_groups": _no_groups,
}
