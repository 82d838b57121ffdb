"""Use of spare GPU memory: the quickest division of a step into passes, with vLLM's share, that still fits.

The same completions are trained on in fewer passes, so a step learns the same: TRL's losses are normalised over all
passes of a step. Only `bnpo` is normalised over each pass.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from workers.contract.memory import Estimate

NEARLY_FULL = 0.95
"""Share of a GPU's memory above which it is nearly full. Estimates have been within 10 % of measurements, except where
all weights are streamed."""
SHARES = tuple(number / 20 for number in range(2, 19))
"""Shares of a GPU's memory that are tried for vLLM: 0.1 to 0.9."""


@dataclass(frozen=True)
class Division:
    """A way for a process to divide its completions of a step into passes."""

    micro_batch: int
    passes: int
    share: float | None = None
    """Share of a GPU's memory for the run's own vLLM; None if it has none."""


def divisions(current: Division) -> Iterator[Division]:
    """Yield the divisions of the same completions into as many passes as the current one, or fewer."""
    shares = (
        (current.share,)
        if current.share is None
        else (current.share, *(share for share in SHARES if share != current.share))
    )
    for factor in range(1, current.passes + 1):
        if current.passes % factor == 0:
            for share in shares:
                yield Division(current.micro_batch * factor, current.passes // factor, share)


def quickest(current: Division, seconds: Callable[[Division], float | None]) -> Division | None:
    """Find the division with the quickest step, among equals the one with the share nearest to the current one. Return
    None if the current one doesn't fit or is the quickest. `seconds`: returns None for a division that doesn't fit."""
    if seconds(current) is None:
        return None
    durations = [(time, division) for division in divisions(current) if (time := seconds(division)) is not None]
    best = min(durations, key=lambda pair: (pair[0], abs((pair[1].share or 0) - (current.share or 0))))[1]
    return None if best == current else best


def is_roomy(estimate: Estimate, *, longest: int, servers_too: bool) -> bool:
    """Return whether no GPU is nearly full and vLLM's cache, if there is one, holds a sequence of `longest` tokens.
    `servers_too`: whether the servers' own GPUs are checked, too."""
    cards = (gpu for gpu in estimate.gpus if servers_too or gpu.role != "server")
    fits_cache = estimate.serving is None or estimate.serving.tokens >= max(longest, 1)
    return fits_cache and all(gpu.total <= NEARLY_FULL * gpu.card_gib for gpu in cards)
