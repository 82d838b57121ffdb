"""Statistics of canonical rows, collected in one pass with bounded memory."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from controlplane.catalogue.datasets.reader.columns.mapping import prompt_text
from controlplane.catalogue.datasets.reader.excerpts import visible
from workers.contract.run.code_tests import is_input_output
from workers.contract.run.dataset import VALIDATION
from workers.contract.run.row_names import MAX_NAME_CHARS, names_of

BINS = 24
MAX_COUNTED_NAMES = 200
"""Maximum number of difficulties or tags that are counted by name."""
MAX_LISTED_NAMES = 30
MAX_NAME_SETS = 200
"""Maximum number of different sets of names of rows that are counted; with more, none are kept."""
MIN_WORDS = 3
"""Number of words below which a prompt is very short."""
_CODE = re.compile(r"^[ \t]*+(?:def|class|import|from)\s+\w|```", re.MULTILINE)


class Lengths:
    """Distribution of lengths. From 1,000 on, they are cut to three digits, so a few thousand counters suffice."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._sum = 0
        self._longest = 0

    def add(self, length: int) -> None:
        self._counts[length if length < 1000 else _three_digits(length)] += 1
        self._sum += length
        self._longest = max(self._longest, length)

    def as_dict(self) -> dict[str, Any] | None:
        """Return a histogram of equal bins up to the 99th percentile (the last bin includes longer texts), the mean,
        median and other statistics, or None without any lengths."""
        count = self._counts.total()
        if not count:
            return None
        frequencies = sorted(self._counts.items())
        top_length = max(1, _quantile(frequencies, count, 0.99))
        bins = [0] * BINS
        for length, frequency in frequencies:
            bins[min(BINS - 1, length * BINS // (top_length + 1))] += frequency
        return {
            "bins": bins,
            "top": top_length,
            "count": count,
            "mean": self._sum / count,
            "median": _quantile(frequencies, count, 0.5),
            "p95": _quantile(frequencies, count, 0.95),
            "longest": self._longest,
            "sum": self._sum,
        }


class NameCounts:
    """Counts of names. Names beyond the first MAX_COUNTED_NAMES are counted together."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._beyond = 0

    def add(self, name: str) -> None:
        name = visible(name)[:80]
        if name in self._counts or len(self._counts) < MAX_COUNTED_NAMES:
            self._counts[name] += 1
        else:
            self._beyond += 1

    def as_dict(self) -> dict[str, Any]:
        most_common = self._counts.most_common(MAX_LISTED_NAMES)
        return {
            "counts": [{"name": name, "count": count} for name, count in most_common],
            "others": self._beyond + self._counts.total() - sum(count for _, count in most_common),
            "different": len(self._counts),
        }


class NameSets:
    """Counts of training rows by all names that a row goes by (workers.contract.run.row_names)."""

    def __init__(self) -> None:
        self._counts: Counter[frozenset[str]] | None = Counter()

    def add(self, names: frozenset[str]) -> None:
        if self._counts is None:
            return
        self._counts[frozenset(name for name in names if name.isprintable() and len(name) <= MAX_NAME_CHARS)] += 1
        if len(self._counts) > MAX_NAME_SETS:
            self._counts = None

    def as_list(self) -> list[dict[str, Any]] | None:
        """Return each set of names with its number of rows, most frequent first; None if there are too many sets."""
        if self._counts is None:
            return None
        return [{"names": sorted(names), "rows": count} for names, count in self._counts.most_common()]


class Statistics:
    """Statistics of a version's rows: lengths, names, and numbers of rows with certain properties."""

    def __init__(self) -> None:
        self.rows = 0
        self._lengths = {
            name: Lengths() for name in ("prompt_chars", "prompt_tokens", "answer_chars", "answer_tokens", "turns")
        }
        self._difficulty, self._tags = NameCounts(), NameCounts()
        self._name_sets = NameSets()
        self._counts: Counter[str] = Counter()

    def add(
        self, row: Mapping[str, Any], *, prompt_tokens: int | None = None, answer_tokens: int | None = None
    ) -> None:
        """Add a row in canonical.SCHEMA, with its metadata as an object, and its token counts if known."""
        self.rows += 1
        prompt, answer = prompt_text(row["prompt"]), row.get("answer")
        self._lengths["prompt_chars"].add(len(prompt))
        self._lengths["turns"].add(len(row["prompt"]))
        if answer is not None:
            self._lengths["answer_chars"].add(len(answer))
        for name, tokens in (("prompt_tokens", prompt_tokens), ("answer_tokens", answer_tokens)):
            if tokens is not None:
                self._lengths[name].add(tokens)
        self._counts["validation"] += row.get("split") == "validation"
        self._counts["answers"] += answer is not None
        self._counts["tests"] += bool(row.get("test_cases"))
        self._counts["io_tests"] += any(map(is_input_output, row.get("test_cases") or ()))
        self._counts["code"] += bool(row.get("test_cases")) or bool(answer and _CODE.search(answer))
        self._counts["short"] += len(prompt.split(None, MIN_WORDS)) < MIN_WORDS
        self._add_names(row.get("metadata") or {})
        if row.get("split") != VALIDATION:
            self._name_sets.add(names_of(row.get("metadata") or {}))

    def _add_names(self, metadata: Mapping[str, Any]) -> None:
        difficulty, tags = metadata.get("difficulty"), metadata.get("tags")
        if isinstance(difficulty, str | int | float) and difficulty != "":
            self._difficulty.add(str(difficulty))
            self._counts["difficulty"] += 1
        for tag in tags if isinstance(tags, list) else [tags]:
            if isinstance(tag, str) and tag:
                self._tags.add(tag)

    def as_dict(self, *, repeated: int = 0, repeated_with_answer: int = 0) -> dict[str, Any]:
        """Return the statistics. `repeated` is the number of rows that repeat an earlier prompt, and
        `repeated_with_answer` how many of them also repeat its answer."""
        lengths = {name: found for name, counts in self._lengths.items() if (found := counts.as_dict())}
        return {
            "rows": self.rows,
            "lengths": lengths,
            "difficulty": self._difficulty.as_dict(),
            "with_difficulty": self._counts["difficulty"],
            "tags": self._tags.as_dict(),
            "name_sets": self._name_sets.as_list(),
            "with_answer": self._counts["answers"],
            "with_tests": self._counts["tests"],
            "with_io_tests": self._counts["io_tests"],
            "code": self._counts["code"],
            "short_prompts": self._counts["short"],
            "validation": self._counts["validation"],
            "repeated": repeated,
            "ambiguous": max(0, repeated - repeated_with_answer),
        }


def _three_digits(length: int) -> int:
    digits: int = 10 ** (len(str(length)) - 3)
    return length // digits * digits


def _quantile(frequencies: list[tuple[int, int]], count: int, share: float) -> int:
    cumulative = 0
    for length, frequency in frequencies:
        cumulative += frequency
        if cumulative >= share * count:
            return length
    return frequencies[-1][0]
