"""The file samples.jsonl: the completions of each generation with their rewards, one prompt group per line."""

import math
import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.contract.run.episodes import EpisodeEnd
from workers.contract.run.prompts import SOURCE_LENGTH, SOURCE_REWARD, SOURCE_ZERO_SPREAD, source_metric
from workers.rewards.advantages import advantages
from workers.trainer.data import Rows, prompt_text, turns
from workers.trainer.recording.metrics import LineFile
from workers.trainer.recording.sources import Sources


@dataclass(frozen=True)
class Sample:
    row: int
    text: str
    tokens: int
    end: str
    """Reason why the completion ended: see `end_of`, and EpisodeEnd for episodes."""
    rewards: list[float]
    """One reward per reward function, NaN where it gave no score; evaluation-only rewards are included only in
    evaluations."""
    advantage: float
    turns: list[Any] | None = None
    prompt: Any = None
    policy: int | None = None
    """Step whose weights generated it; None for the weights that are trained on it."""


def end_of(completion: Any, tokens: Sequence[int], *, ends: Container[int], longest: int) -> str:
    """Return why a completion ended: eos | length (truncated) | tools (its last call has no result) | stop (a stop
    string)."""
    last = completion[-1] if not isinstance(completion, str) and completion else {}
    if tokens and tokens[-1] in ends and not _is_call(last):
        return "eos"
    if len(tokens) >= longest:
        return "length"
    return "tools" if _is_call(last) else "stop"


def _is_call(message: dict[str, Any]) -> bool:
    return message.get("role") == "tool" or bool(message.get("tool_calls"))


class SampleFile:
    def __init__(self, path: Path, *, rows: Rows, names: list[str], weights: list[float], writes: bool) -> None:
        """Open the file. `names`: names of all rewards, evaluation-only ones last. `weights`: weights of the rewards
        that form the total."""
        self._file = LineFile(path, writes=writes)
        self._rows = rows
        self._names = names
        self._weights = weights
        self._sources = Sources(rows)

    def write(self, samples: list[Sample], *, group: int, step: int, mode: str) -> None:
        """Write one line per group. `samples`: samples of all ranks in rank order, in consecutive groups of size
        `group`."""
        now = time.time()
        for start in range(0, len(samples), group):
            members = samples[start : start + group]
            row = self._rows.by_id[members[0].row]
            prompt = members[0].prompt or row["prompt"]
            line = {
                "step": step,
                "t": now,
                "row": row["row"],
                "prompt": prompt_text(prompt),
                "answer": row.get("answer"),
                "completions": [self._completion(sample) for sample in members],
                "mode": mode,
            }
            if source := self._rows.by_id.source_of(members[0].row):
                line["source"] = source
            if members[0].policy is not None:
                line["policy"] = members[0].policy
            prompt_turns = turns(prompt)
            self._file.write(line if prompt_turns is None else {**line, "turns": prompt_turns})

    def log_sources(self, samples: list[Sample], metrics: dict[str, list[float]], group: int, aggregation: str) -> None:
        """Log figures of the samples from each source. `samples`: those of all ranks, in groups of size `group`."""
        if not self._sources:
            return
        columns = zip(*(sample.rewards[: len(self._weights)] for sample in samples), strict=True)
        scores = [[None if math.isnan(reward) else reward for reward in column] for column in columns]
        scored = advantages(scores, self._weights, group, aggregation)
        rows = [sample.row for sample in samples]
        figures: dict[str, Iterable[float | None]] = {
            SOURCE_REWARD: scored.totals,
            SOURCE_LENGTH: [sample.tokens for sample in samples],
            SOURCE_ZERO_SPREAD: [float(is_zero) for is_zero in scored.zero_spread for _ in range(group)],
        }
        for figure, values in figures.items():
            for source, mean in self._sources.means(zip(rows, values, strict=True)).items():
                metrics[source_metric(source, figure)].append(mean)

    def _total(self, sample: Sample) -> float | None:
        pairs = zip(self._weights, sample.rewards, strict=False)
        weighted = [weight * reward for weight, reward in pairs if not math.isnan(reward)]
        return sum(weighted) if weighted else None

    def _completion(self, sample: Sample) -> dict[str, Any]:
        rewards = [None if math.isnan(reward) else reward for reward in sample.rewards]
        optional_turns = {} if sample.turns is None else {"turns": sample.turns}
        return {
            **optional_turns,
            "text": sample.text,
            "tokens": sample.tokens,
            "ended": sample.end in ("eos", EpisodeEnd.DONE),
            "end": sample.end,
            "rewards": dict(zip(self._names, rewards, strict=False)),
            "reward": self._total(sample),
            "advantage": sample.advantage,
        }
