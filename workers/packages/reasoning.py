"""reasoning-gym: generates rows of its task families, and scores a model's answers with its own checkers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.packages.families import FAMILIES
from workers.sandbox.outcomes import Job, Kind, Limits, Outcome
from workers.sandbox.plain_values import NotPlain, decode, encode
from workers.sandbox.pool import Sandbox

MODULE = "reasoning"
"""The module of inside/."""
COLUMN = "reasoning_gym"
"""The column of a dataset with the data for the checker: {"dataset", "seed", "level", "index", "entry"}. `entry` is the
package's own row as JSON text, including tuples: some families give other rows when they are generated again."""
MAX_ROWS = 100_000
MAX_SEED = 2**31 - 1
_BATCH = 200
"""Rows generated in one evaluation."""
_SOURCE = """
from workers.packages.inside import reasoning
rows, score, families = reasoning.rows, reasoning.score, reasoning.families
"""
_MAKING = Limits(seconds=600, memory_mb=2048, value_bytes=256 * 1024 * 1024)
_SCORING = Limits(seconds=20, memory_mb=1024)


class NotMade(Exception):
    """A family generated no rows. The message says why, for people."""


@dataclass(frozen=True)
class Recipe:
    """The rows to generate of one family."""

    family: str
    rows: int
    seed: int = 0
    level: int = 0
    """The level of difficulty, from 1; 0: the package's default settings."""


def problem(recipe: Recipe) -> str:
    """Return what is wrong with a recipe, as a sentence for people, or ""."""
    family = FAMILIES.get(recipe.family)
    if family is None:
        return f"reasoning-gym has no family {recipe.family!r}."
    if not 0 <= recipe.level <= family.levels:
        levels = f"from 1 to {family.levels}" if family.levels else "none"
        return f"{recipe.family} has no level {recipe.level} of difficulty; it has {levels}."
    if not 1 <= recipe.rows <= MAX_ROWS:
        return f"From 1 to {MAX_ROWS:,} rows can be made at once."
    return "" if 0 <= recipe.seed <= MAX_SEED else f"A seed is a whole number from 0 to {MAX_SEED:,}."


def made(recipe: Recipe, sandbox: Sandbox) -> Iterator[list[dict[str, Any]]]:
    """Generate a dataset's rows in batches: {"question", "answer" if it has one, "reasoning_gym"}. Raises NotMade."""
    for start in range(0, recipe.rows, _BATCH):
        count = min(_BATCH, recipe.rows - start)
        [outcome] = sandbox.run(
            [Job(_SOURCE, "rows", (recipe.family, recipe.seed, recipe.level, start, count))], _MAKING
        )
        if outcome.kind is not Kind.OK:
            why = outcome.message or f"it ended as {outcome.kind}."
            raise NotMade(f"{recipe.family} made no rows: {why}")
        yield [_row(recipe, start + offset, entry) for offset, entry in enumerate(outcome.value)]


def scored(answers: Sequence[tuple[Mapping[str, Any], str]], sandbox: Sandbox) -> list[float | Outcome]:
    """Score pairs of (row's column, answer) with the checker; an Outcome stands for a missing score. Raises NotPlain
    and ValueError for a column that reasoning-gym didn't make."""
    jobs = [Job(_SOURCE, "score", (*_parsed(column), answer)) for column, answer in answers]
    return [outcome.value if outcome.kind is Kind.OK else outcome for outcome in sandbox.run(jobs, _SCORING)]


def _row(recipe: Recipe, index: int, entry: Mapping[str, Any]) -> dict[str, Any]:
    text = json.dumps(encode(dict(entry)), ensure_ascii=False, separators=(",", ":"))
    data = {"dataset": recipe.family, "seed": recipe.seed, "level": recipe.level, "index": index, "entry": text}
    answer = {} if entry["answer"] is None else {"answer": entry["answer"]}
    return {"question": entry["question"], **answer, COLUMN: data}


def _parsed(column: Mapping[str, Any]) -> tuple[str, int, int, dict[str, Any]]:
    try:
        family, seed, level = str(column["dataset"]), int(column["seed"]), int(column.get("level") or 0)
        entry = decode(json.loads(column["entry"]))
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"no row of reasoning-gym: {error}") from None
    if not isinstance(entry, dict) or family not in FAMILIES:
        raise NotPlain("no row of reasoning-gym")
    return family, seed, level, entry
