"""The order of a mix's prompts: each source is shuffled and repeated on its own, and each batch has each one's share.

The order follows from the seed and the number of the batch, so a checkpoint need not contain anything of it.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from workers.contract.run.mixing import counts_by_batch, place_of

_BATCHES = 1 << 32
"""Number in a seed of a batch's order, beyond those of sources."""


def sources_of(rows: Sequence[int]) -> list[int]:
    """Return the index of the source of each of a run's rows."""
    return [place_of(row)[0] for row in rows]


class MixedSampler:
    """A replacement for TRL's sampler: as many batches in an epoch, each prompt and batch repeated as often."""

    def __init__(self, usual: Any, rows: Sequence[int], weights: Sequence[float]) -> None:
        """Take the batches' size and repetitions from TRL's sampler. `rows`: those of the training set, in order."""
        self.batch_size, self.mini_repeat_count = usual.batch_size, usual.mini_repeat_count
        self.repeat_count = usual.repeat_count
        self._usual_length = len(usual)
        self._batches = len(rows) // self.batch_size
        self._shuffles, self._seed = usual.shuffle, (usual.seed or 0) % 2**32
        self._weights = weights
        sources = np.asarray(sources_of(rows))
        self._indexes = [np.flatnonzero(sources == source) for source in range(len(weights))]
        self._epoch = 0

    def __len__(self) -> int:
        return self._usual_length

    def __iter__(self) -> Iterator[int]:
        first_batch = self._epoch * self._batches
        self._epoch += 1
        for indexes in self._from_batch(first_batch, self._batches):
            for _ in range(self.repeat_count):
                for index in indexes:
                    for _ in range(self.mini_repeat_count):
                        yield index

    def _from_batch(self, first: int, count: int) -> Iterator[list[int]]:
        drawn = np.zeros(len(self._weights), dtype=np.int64)
        orders: dict[int, tuple[int, Any]] = {}
        for number, counts in enumerate(islice(counts_by_batch(self._weights, self.batch_size), first + count)):
            if number >= first:
                batch = [
                    self._prompt(orders, source, int(drawn[source]) + extra)
                    for source, source_count in enumerate(counts)
                    for extra in range(source_count)
                ]
                yield self._in_order(batch, _BATCHES, number)
            drawn += counts

    def _prompt(self, orders: dict[int, tuple[int, Any]], source: int, number: int) -> int:
        """Return the index of a source's prompt with this number over all of its passes. `orders`: the current pass of
        each source, and its order."""
        indexes = self._indexes[source]
        current_pass, place = divmod(number, len(indexes))
        if source not in orders or orders[source][0] != current_pass:
            orders[source] = current_pass, self._in_order(indexes, source, current_pass)
        return int(orders[source][1][place])

    def _in_order(self, indexes: Any, *numbers: int) -> Any:
        if not self._shuffles:
            return indexes
        return np.random.default_rng([self._seed, *numbers]).permutation(indexes).tolist()
