"""The figure of each rule over the newest steps: pure functions of a history."""

from __future__ import annotations

from runs.insight.health.judging import (
    completion_signals,
    episode_signals,
    machine_signals,
    policy_signals,
    reward_signals,
)
from runs.insight.health.judging.signal import Of

OF: dict[str, Of] = {
    **reward_signals.OF,
    **completion_signals.OF,
    **episode_signals.OF,
    **policy_signals.OF,
    **machine_signals.OF,
}
"""Rule -> its figure."""
