"""Draw of the validation split: an exact share of the distinct prompts, stratified by difficulty.

It is deterministic: the same prompts in the same order with the same seed give the same split. A row with a repeated
prompt goes into the split of the first such row, so no prompt is in both splits.
"""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_STRATA = 1000
"""Maximum number of difficulties with a stratum of their own; all others share one stratum."""
OTHER_STRATUM = "\n"


@dataclass(frozen=True)
class Split:
    """Validation share of the rows, and seed of the draw."""

    share: float = 0.1
    seed: int = 42

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> "Split":
        """Build a split from a dict. Raises ValueError with a message for people."""
        share, seed = (data or {}).get("share", cls.share), (data or {}).get("seed", cls.seed)
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
            raise ValueError("The validation share must be at least 0 and less than 1.")
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ValueError("The seed must be a whole number.")
        return cls(float(share), seed)


class Strata:
    """Strata of the rows so far, by difficulty; their number is bounded."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def name(self, metadata: Mapping[str, Any]) -> str:
        """Return the name of the row's stratum, which is its difficulty, or "" if it has none."""
        difficulty = metadata.get("difficulty")
        name = str(difficulty)[:200] if isinstance(difficulty, str | int | float) else ""
        if name not in self._names:
            if len(self._names) >= MAX_STRATA:
                return OTHER_STRATUM
            self._names.add(name)
        return name


class ValidationDraw:
    """Draw of the splits of successive prompts. `counts` maps each stratum to its number of distinct prompts."""

    def __init__(self, counts: Mapping[str, int], split: Split) -> None:
        self._remaining = Counter(counts)
        self._needed = Counter(quotas(counts, split))
        self._rngs = {name: random.Random(f"{split.seed}\0{name}") for name in counts}  # noqa: S311  not a secret

    def is_validation(self, stratum: str) -> bool:
        """Draw whether the next distinct prompt of a stratum goes into the validation split. Each subset of the needed
        size is equally likely."""
        remaining, needed = self._remaining[stratum], self._needed[stratum]
        if remaining <= 0:
            raise ValueError(f"More prompts than were counted in {stratum!r}.")
        self._remaining[stratum] -= 1
        is_drawn = self._rngs[stratum].random() * remaining < needed
        self._needed[stratum] -= is_drawn
        return is_drawn


def quotas(counts: Mapping[str, int], split: Split) -> dict[str, int]:
    """Allocate the validation prompts to strata: the total is exact, and each stratum within one prompt of its share.

    For any share above 0 and at least two prompts, neither split is empty.
    """
    total = sum(counts.values())
    size = round(total * split.share)
    if split.share > 0 and total > 1:
        size = min(max(size, 1), total - 1)
    exact = {name: count * size / total for name, count in counts.items()} if total else {}
    sizes = {name: int(share) for name, share in exact.items()}
    # The remainder goes to the strata that rounding down reduced most; the seed breaks ties.
    rng = random.Random(split.seed)  # noqa: S311
    ties = {name: rng.random() for name in sorted(exact)}
    for name in sorted(exact, key=lambda name: (sizes[name] - exact[name], ties[name]))[: size - sum(sizes.values())]:
        sizes[name] += 1
    return sizes
