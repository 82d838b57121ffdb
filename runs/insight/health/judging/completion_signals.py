"""Signals of the health rules about completions: their lengths, and signs of decay in their text."""

from collections.abc import Callable

import numpy as np

from controlplane.platform.templatetags.figures import significant
from runs.insight.health.history import History, Text, rolling_mean
from runs.insight.health.judging.signal import Signal, SignalReader, rolled, rolled_early, run_lengths

MIN_TEXTS = 8
LENGTH = "completions/mean_length"
MIN_IDENTICAL_SHARE = 0.5
"""Share of identical completions above which sampling itself is at fault."""
IDENTICAL_CAUSES = {
    "start": {
        "why": "it has been so from the start, so sampling is greedy (temperature 0 or top_k 1) or uses a fixed seed",
        "check": "Check the temperature, top_k and top_p, and remove a fixed seed of vLLM’s requests.",
    },
    "later": {
        "why": "the policy no longer explores",
        "check": "Raise the temperature, check the entropy, and go back to an earlier checkpoint.",
    },
}


def _length_cap(history: History) -> Signal | None:
    lengths, mark = rolled(history.get(LENGTH), rolling_mean, 10), history.marks.get(LENGTH)
    if lengths is None or mark is None:
        return None
    has_grown = lengths.value >= 1.25 * mark.start
    fields = {"start": significant(mark.start), "now": significant(float(lengths.value[-1]))}
    return Signal(lengths.at, np.where(has_grown, lengths.value / history.config.cap, 0.0), fields)


def _texts(sign: Callable[[Text], int], *, beyond_usual: bool = True) -> SignalReader:
    """Return a function for the share of the newest completions with a sign of decay, beyond the first ones' share."""

    def of(history: History) -> Signal | None:
        newest = [text for text in history.texts if text.read][-40:]
        if sum(text.read for text in newest[-3:]) < MIN_TEXTS:
            return None
        read = np.array([text.read for text in newest], dtype=float)
        count = np.array([sign(text) for text in newest], dtype=float)
        window = min(3, len(newest))
        share = rolling_mean(count, window) / rolling_mean(read, window)
        first = history.first_texts
        usual_share = sign(first) / first.read if beyond_usual and first is not None else 0.0
        return Signal(np.array([text.step for text in newest[window - 1 :]]), np.maximum(share - usual_share, 0.0))

    return of


def _identical(history: History) -> Signal | None:
    """Compute the share of identical completions beyond the usual one. If most are identical from the start, that is
    not usual, but due to the sampling."""
    first = history.first_texts
    is_old = first is not None and first.read > 0 and first.identical >= MIN_IDENTICAL_SHARE * first.read
    signal = _texts(lambda text: text.identical, beyond_usual=not is_old)(history)
    return signal and signal.with_fields(**IDENTICAL_CAUSES["start" if is_old else "later"])


def _length_collapse(history: History) -> Signal | None:
    lengths, mark = rolled(history.get(LENGTH), rolling_mean, 10), history.marks.get(LENGTH)
    if lengths is None or mark is None:
        return None
    usual_length = max(mark.start, mark.best)
    fields = {"now": significant(float(lengths.value[-1])), "usual": significant(usual_length)}
    return Signal(lengths.at, lengths.value / max(usual_length, 1.0), fields)


def _truncation(history: History) -> Signal | None:
    column = history.get("completions/clipped_ratio")
    share = rolled_early(column, 10, 5)
    if share is None or column is None:
        return None
    masked = ", and are ignored (mask_truncated_completions)" if history.config.mask_truncated else ""
    fields = {"cap": f"{history.config.cap:,}", "masked": masked}
    is_certain = run_lengths(column.value >= 0.99)[-len(share.value) :] >= 5
    return Signal(share.at, share.value, fields, is_certain)


SIGNALS: dict[str, SignalReader] = {
    "length_cap": _length_cap,
    "length_collapse": _length_collapse,
    "repetition": _texts(lambda text: text.repeated),
    "identical": _identical,
    "gibberish": _texts(lambda text: text.gibberish),
    "empty": _texts(lambda text: text.empty, beyond_usual=False),
    "truncation": _truncation,
}
