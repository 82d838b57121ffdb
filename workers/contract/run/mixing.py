"""A run's mix: the dataset versions it draws from, and how many prompts each batch gets of each. Standard library only.

A batch has each source's share of it, rounded down or up; what rounding leaves over goes to the sources that are owed
most, so that the shares hold over the run, too. The counts follow from the weights and the number of the batch alone.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from workers.contract.run.problem import Problem
from workers.contract.wire.names import FileName

MAX_SOURCES = 16
ROWS_OF_SOURCE = 100_000_000
"""Row n of the source with index i is row i * ROWS_OF_SOURCE + n of the run; rows of the first keep their numbers."""
MAX_WEIGHT = 1_000_000


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """What a run decides about one of its datasets."""

    weight: float = 1.0
    """Share of each batch's prompts, relative to the weights of the other datasets."""
    max_rows: int = 0
    """Maximum number of training rows, sampled with the run's seed; 0 for all."""
    system_prompt: str = ""
    """System prompt that replaces the one of each row; "" to keep those."""


@dataclass(frozen=True)
class SourceSpec(SourceSettings):
    """A dataset version, as it was at submission."""

    name: str
    version: int
    sha256: str
    rows: int
    """Training and validation rows together."""


def path_in(folder: Path, sha256: str) -> Path:
    return folder / FileName.SOURCES / f"{sha256}.parquet"


def place_of(run_row: int) -> tuple[int, int]:
    """Return the index of the source that a run's row is from, and its number there."""
    return divmod(run_row, ROWS_OF_SOURCE)


def problems(sources: Sequence[SourceSpec]) -> Iterator[str]:
    """Yield the reasons why a run can't draw from these sources."""
    if len(sources) > MAX_SOURCES:
        yield f"A run can mix at most {MAX_SOURCES} datasets, not {len(sources)}."
    for source in sources:
        if not 0 < source.weight <= MAX_WEIGHT:
            yield (
                f"The weight of {source.name} is {source.weight:g}, but it must be above 0 and at most {MAX_WEIGHT:,}. "
                "To leave a dataset out, remove it from the mix."
            )
        if source.max_rows < 0:
            yield f"{source.name} can't have {source.max_rows} rows at most. Use 0 for all of its rows."
    counts = Counter(source.name for source in sources)
    for name in [name for name, count in counts.items() if count > 1]:
        yield f"Two datasets of the mix are named {name}, so their figures could not be told apart. Remove one of them."


def shares(weights: Sequence[float]) -> list[Fraction]:
    """Return each weight's exact share of their sum."""
    exact_weights = [Fraction(repr(float(weight))) for weight in weights]
    return [weight / sum(exact_weights) for weight in exact_weights]


def most_in_batch(weights: Sequence[float], size: int) -> list[int]:
    """Return the largest number of prompts that a batch of this size takes from each source."""
    return [math.ceil(share * size) for share in shares(weights)]


def shortage(name: str, rows: int, needed: int) -> Problem:
    """Describe a source with fewer training rows than a batch may need."""
    sentence = f"{name} has {rows:,} prompts to train on, but a batch may take {needed:,} of them."
    return Problem("sources", sentence, "Lower its weight, make the batch smaller, or add prompts.")


def counts_by_batch(weights: Sequence[float], size: int) -> Iterator[list[int]]:
    """Yield, batch after batch, how many of its prompts come from each source."""
    wanted_counts = [share * size for share in shares(weights)]
    owed = [Fraction(0)] * len(wanted_counts)
    for _ in itertools.count():
        counts = [math.floor(wanted) for wanted in wanted_counts]
        owed = [debt + wanted - count for debt, wanted, count in zip(owed, wanted_counts, counts, strict=True)]
        rounded_up = [index for index, wanted in enumerate(wanted_counts) if wanted.denominator > 1]
        for index in sorted(rounded_up, key=lambda index: -owed[index])[: size - sum(counts)]:
            counts[index] += 1
            owed[index] -= 1
        yield counts
