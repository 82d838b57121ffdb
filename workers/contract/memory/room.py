"""Spare GPU memory: the quickest division of a step into passes that still fits, with vLLM's share.

The same completions are trained on in fewer passes, so a step learns the same: TRL's losses are normalised over all
passes of a step. Only `bnpo` is normalised over each pass.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from workers.contract.memory import Estimate

NEARLY_FULL = 0.95
"""Share of a card: estimates have been within 10 % of what was measured, except where all weights are streamed."""
SHARES = tuple(number / 20 for number in range(2, 19))
"""Shares of a card that are tried for vLLM: 0.1 to 0.9."""


@dataclass(frozen=True)
class Division:
    """A way for a process to divide its completions of a step into passes."""

    micro_batch: int
    """Completions in a pass."""
    passes: int
    share: float | None = None
    """Share of a card for the run's own vLLM; None: it has none."""


def divisions(now: Division) -> Iterator[Division]:
    """Yield the divisions of the same completions into as many passes as now, or fewer."""
    shares = (now.share,) if now.share is None else (now.share, *(share for share in SHARES if share != now.share))
    for factor in range(1, now.passes + 1):
        if now.passes % factor == 0:
            for share in shares:
                yield Division(now.micro_batch * factor, now.passes // factor, share)


def quickest(now: Division, seconds: Callable[[Division], float | None]) -> Division | None:
    """Find the quickest division by `seconds` of a step (None: it doesn't fit), with the share nearest to the present
    one. None: the present one doesn't fit, or is the quickest."""
    if seconds(now) is None:
        return None
    timed = [(time, division) for division in divisions(now) if (time := seconds(division)) is not None]
    best = min(timed, key=lambda pair: (pair[0], abs((pair[1].share or 0) - (now.share or 0))))[1]
    return None if best == now else best


def is_roomy(answer: Estimate, *, longest: int, servers_too: bool) -> bool:
    """Return True if no trainer's GPU is nearly full, and vLLM's cache holds a sequence of `longest` tokens.
    `servers_too`: servers' GPUs count as well."""
    cards = (gpu for gpu in answer.gpus if servers_too or gpu.role != "server")
    fits_cache = answer.serving is None or answer.serving.tokens >= max(longest, 1)
    return fits_cache and all(gpu.total <= NEARLY_FULL * gpu.card_gib for gpu in cards)
