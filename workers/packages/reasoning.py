"""reasoning-gym: its families, rows made of them, and its own checker on what a model wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.packages.families import FAMILIES
from workers.sandbox.outcomes import Job, Kind, Limits, Outcome
from workers.sandbox.plain_values import NotPlain, decode, encode
from workers.sandbox.pool import Sandbox

MODULE = "reasoning"
"""Of inside/."""
COLUMN = "reasoning_gym"
"""Of a dataset's row: {"dataset", "seed", "level", "index", "entry"}, what the checker needs. `entry` is JSON text of
the row as the package made it, its tuples included: made again elsewhere, some families give other rows."""
MOST_ROWS = 100_000
MOST_SEED = 2**31 - 1
_AT_ONCE = 200
"""Rows of one evaluation."""
_SOURCE = """
from workers.packages.inside import reasoning
rows, score, families = reasoning.rows, reasoning.score, reasoning.families
"""
_MAKING = Limits(seconds=600, memory_mb=2048, value_bytes=256 * 1024 * 1024)
_SCORING = Limits(seconds=20, memory_mb=1024)


class NotMade(Exception):
    """A family made no rows. The text says why, for people."""


@dataclass(frozen=True)
class Recipe:
    """Rows of one family. `level`: of its difficulty, from 1; 0: the package's own settings."""

    family: str
    rows: int
    seed: int = 0
    level: int = 0


def problem(recipe: Recipe) -> str:
    """What is wrong with it, for people, or ""."""
    family = FAMILIES.get(recipe.family)
    if family is None:
        return f"reasoning-gym has no family {recipe.family!r}."
    if not 0 <= recipe.level <= family.levels:
        known = f"from 1 to {family.levels}" if family.levels else "none"
        return f"{recipe.family} has no level {recipe.level} of difficulty; it has {known}."
    if not 1 <= recipe.rows <= MOST_ROWS:
        return f"From 1 to {MOST_ROWS:,} rows can be made at once."
    return "" if 0 <= recipe.seed <= MOST_SEED else f"A seed is a whole number from 0 to {MOST_SEED:,}."


def made(recipe: Recipe, sandbox: Sandbox) -> Iterator[list[dict[str, Any]]]:
    """The rows for a dataset, in pieces: {"question", "answer" if it has one, "reasoning_gym"}. Raises NotMade."""
    for start in range(0, recipe.rows, _AT_ONCE):
        count = min(_AT_ONCE, recipe.rows - start)
        [outcome] = sandbox.run(
            [Job(_SOURCE, "rows", (recipe.family, recipe.seed, recipe.level, start, count))], _MAKING
        )
        if outcome.kind is not Kind.OK:
            raise NotMade(f"{recipe.family} made no rows: {_words(outcome)}")
        yield [_row(recipe, start + place, entry) for place, entry in enumerate(outcome.value)]


def scored(answers: Sequence[tuple[Mapping[str, Any], str]], sandbox: Sandbox) -> list[float | Outcome]:
    """The checker's scores of (column of the row, answer); an Outcome where it gave none. Raises NotPlain and
    ValueError for a column that wasn't made here."""
    jobs = [Job(_SOURCE, "score", (*_told(column), answer)) for column, answer in answers]
    return [one.value if one.kind is Kind.OK else one for one in sandbox.run(jobs, _SCORING)]


def _row(recipe: Recipe, index: int, entry: Mapping[str, Any]) -> dict[str, Any]:
    text = json.dumps(encode(dict(entry)), ensure_ascii=False, separators=(",", ":"))
    held = {"dataset": recipe.family, "seed": recipe.seed, "level": recipe.level, "index": index, "entry": text}
    answer = {} if entry["answer"] is None else {"answer": entry["answer"]}
    return {"question": entry["question"], **answer, COLUMN: held}


def _told(column: Mapping[str, Any]) -> tuple[str, int, int, dict[str, Any]]:
    try:
        family, seed, level = str(column["dataset"]), int(column["seed"]), int(column.get("level") or 0)
        entry = decode(json.loads(column["entry"]))
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"no row of reasoning-gym: {error}") from None
    if not isinstance(entry, dict) or family not in FAMILIES:
        raise NotPlain("no row of reasoning-gym")
    return family, seed, level, entry


def _words(outcome: Outcome) -> str:
    return outcome.message or f"it ended as {outcome.kind}."
