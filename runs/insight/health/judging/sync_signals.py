"""The signal of the health rule about weight syncs.

The trainer has already corrected the shares that it logs for rounding (workers.trainer.rollouts.sync_figures), so they
are only compared with the rule's bounds here.
"""

import numpy as np

from controlplane.platform.templatetags.figures import significant
from runs.insight.health.history import Floats, History
from runs.insight.health.judging.signal import Signal, SignalReader
from workers.contract.reports.metric_names import POLICY_CHANGE, VLLM_CHANGED, VLLM_FOLLOWED

MIN_ARRIVED_SHARE = 0.1
"""Share of the change below which nothing has arrived, given the noise of a few short sequences."""


def _sync(history: History) -> Signal | None:
    """Compute the higher share of the policy's change that arrived in vLLM with the last two syncs. A sync whose share
    is unknown counts as arrived."""
    changed, followed = history.get(VLLM_CHANGED, 2), history.columns.get(VLLM_FOLLOWED)
    change = history.columns.get(POLICY_CHANGE)
    if changed is None or followed is None or change is None:
        return None
    known = dict(zip(followed.step.tolist(), followed.value.tolist(), strict=True))
    shares = np.array([max(0.0, known.get(step, 1.0)) for step in changed.step.tolist()])
    value = np.maximum(shares[:-1], shares[1:])
    fields = {"what": _what(shares), "change": significant(float(change.value[-1]))}
    return Signal(changed.step[1:], value, fields)


def _what(shares: Floats) -> str:
    """Name what arrives now, and state whether more did before."""
    if shares[-2:].max() >= MIN_ARRIVED_SHARE:
        return "Only a part of the update reaches vLLM"
    if shares.max() >= MIN_ARRIVED_SHARE:
        return "The new weights don’t reach vLLM any more"
    return "The new weights don’t reach vLLM"


SIGNALS: dict[str, SignalReader] = {"sync": _sync}
