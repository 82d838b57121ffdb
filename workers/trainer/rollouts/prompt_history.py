"""Statistics of how useful each prompt has been, and weighted draws of prompts, the same on all ranks and after a
resume."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workers.contract.run import prompts as metric
from workers.contract.run.mixing import shares
from workers.trainer.configuration.spec import SpecError
from workers.trainer.rollouts.prompt_mix import sources_of

FILE = "prompt_history.json"
KEPT_SHARE = 0.25
"""Share of its history that a prompt keeps at each visit, so that groups of older policies soon stop mattering, and a
prompt that the policy now always solves isn't drawn for long."""
ASSUMED_SHARE = 0.15
"""Share that each visit leaves of the assumption that a prompt is as useful as the others."""
MAX_UNSEEN, MAX_LITTLE = 1.0, 0.15
"""Upper bounds of the total weights of unseen prompts and of those that were of little use, relative to the total
weight of all prompts known to be useful: the search for useful prompts must not cost more than it saves."""


class PromptHistory:
    """Statistics of the training prompts, by their indexes in the training set. A prompt is useful in proportion to the
    spread of its groups' rewards, their standard deviation; for rewards of 0 and 1, that is sqrt(p (1 - p)) with the
    solve rate p. A prompt's weight is its spread relative to the largest one. An unseen prompt is assumed to be as
    useful as seen ones are on average, and that assumption fades with each visit. A prompt is known to be useful if its
    expected spread is at least half of that average."""

    def __init__(self, rows: Sequence[int], *, seed: int, least_weight: float, mix: Sequence[float] = (1.0,)) -> None:
        """Create an empty history. `rows`: the row ids of the training set. `least_weight`: the minimum weight. `mix`:
        the weight of each source, each of which has statistics of its own."""
        self._rows = np.asarray(rows, dtype=np.int64)
        self._indexes = {row: index for index, row in enumerate(self._rows.tolist())}
        self._seed = seed % 2**32
        self._least_weight = least_weight
        self._draws = 0
        self._sources = np.asarray(sources_of(self._rows.tolist()))
        self._parts = [np.flatnonzero(self._sources == source) for source in range(len(mix))]
        self._shares = [float(share) for share in shares(mix)]
        self._visits = np.zeros(len(self._rows), dtype=np.int64)
        self._reward = np.zeros(len(self._rows))
        self._spread = np.zeros(len(self._rows))

    def draw(self, sources: Sequence[int], *, excluded_rows: Collection[int] = (), weighted: bool) -> list[int]:
        """Draw a different index from each of `sources`, fewer if there are no more, excluding those of
        `excluded_rows`. The algorithm is that of Efraimidis and Spirakis 2006 (Information Processing Letters 97): the
        items with the largest log(u) / weight are a weighted sample without replacement."""
        if not sources:
            return []
        rng = np.random.default_rng([self._seed, self._draws])
        self._draws += 1
        keys = np.log(1.0 - rng.random(len(self._rows)))
        if weighted:
            keys /= self.weights()
        keys[[self._indexes[row] for row in excluded_rows]] = -np.inf
        order = np.argsort(-keys, kind="stable")[: len(self._rows) - len(set(excluded_rows))]
        by_source = {source: iter(order[self._sources[order] == source].tolist()) for source in set(sources)}
        drawn = (next(by_source[source], None) for source in sources)
        return [index for index in drawn if index is not None]

    def note(self, row: int, rewards: Sequence[float]) -> None:
        """Record the finite rewards of one group of completions for this row."""
        if not rewards:
            return
        index = self._indexes[row]
        self._visits[index] += 1
        self._reward[index] += (1 - KEPT_SHARE) * (float(np.mean(rewards)) - self._reward[index])
        self._spread[index] += (1 - KEPT_SHARE) * (float(np.std(rewards)) - self._spread[index])

    def weights(self) -> NDArray[np.float64]:
        """Return each prompt's weight, from the minimum weight to 1 in proportion to its expected spread, scaled down
        where the bounds for prompts not known to be useful require it."""
        weights = np.zeros(len(self._rows))
        for part in self._parts:
            expected, kinds = self._expected(part)
            own_weights = self._least_weight + (1 - self._least_weight) * expected / expected.max()
            useful_weight = own_weights[kinds[metric.TEACHES]].sum()
            for kind, bound in ((metric.UNSEEN, MAX_UNSEEN), (metric.TEACH_LITTLE, MAX_LITTLE)):
                limit, total = bound * useful_weight, own_weights[kinds[kind]].sum()
                if 0 < limit < total:
                    own_weights[kinds[kind]] *= limit / total
            weights[part] = own_weights
        return weights

    def _expected(self, part: NDArray[np.int64]) -> tuple[NDArray[np.float64], dict[str, NDArray[np.bool_]]]:
        """Return the expected spread of the next group of each prompt of a source, and masks of its prompts of each
        kind. An unseen prompt is expected to have the mean spread of the seen prompts and one imaginary prompt with the
        largest spread, so that a few early groups without spread don't dominate."""
        visits = self._visits[part]
        is_visited = visits > 0
        assumption_weight = ASSUMED_SHARE**visits
        total_weight = 1 - KEPT_SHARE**visits
        spread = np.divide(self._spread[part], total_weight, out=np.zeros_like(total_weight), where=is_visited)
        unseen_spread = (spread.sum() + (spread.max(initial=0.0) or 1.0)) / (is_visited.sum() + 1)
        expected: NDArray[np.float64] = assumption_weight * unseen_spread + (1 - assumption_weight) * spread
        is_useful = is_visited & (expected >= unseen_spread / 2)
        return expected, {
            metric.TEACHES: is_useful,
            metric.TEACH_LITTLE: is_visited & ~is_useful,
            metric.UNSEEN: ~is_visited,
        }

    def metrics(self, *, weighted: bool) -> dict[str, float]:
        is_visited = self._visits > 0
        kinds_by_part = [self._expected(part)[1] for part in self._parts]
        kinds = kinds_by_part[0]
        values = {
            metric.share_of_prompts(kind): float(sum(part[kind].sum() for part in kinds_by_part) / len(self._rows))
            for kind in kinds
        }
        if is_visited.any():
            rewards = self._reward[is_visited] / (1 - KEPT_SHARE ** self._visits[is_visited])
            values[metric.MEAN_REWARD] = float(rewards.mean())
        if weighted:
            weights = self.weights()
            weights_by_part = [weights[part] for part in self._parts]
            parts = list(zip(self._shares, weights_by_part, kinds_by_part, strict=True))
            values |= {
                metric.share_of_draws(kind): float(sum(share * w[of[kind]].sum() / w.sum() for share, w, of in parts))
                for kind in kinds
            }
        return values

    # --- in a checkpoint ---

    def save(self, checkpoint: Path) -> None:
        visited_indexes = np.flatnonzero(self._visits)
        columns = (self._rows, self._visits, self._reward, self._spread)
        rows = list(zip(*(column[visited_indexes].tolist() for column in columns), strict=True))
        (checkpoint / FILE).write_text(json.dumps({"draws": self._draws, "rows": rows}), encoding="utf-8")

    def load(self, checkpoint: Path) -> None:
        try:
            state = json.loads((checkpoint / FILE).read_bytes())
            self._draws = int(state["draws"])
            for row, visits, reward, spread in state["rows"]:
                index = self._indexes[row]
                self._visits[index], self._reward[index], self._spread[index] = visits, reward, spread
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SpecError(
                f"{checkpoint.name} can't be resumed: {FILE}, the history of its prompts, is missing or can't be "
                f"read ({error!r}). Clone the run to start again."
            ) from error
