"""reasoning-gym: generates rows of its task families, and scores a model's answers with its checkers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.packages.families import FAMILIES
from workers.sandbox.outcomes import Job, Kind, Limits, Outcome
from workers.sandbox.plain_values import NotPlain, decode, encode
from workers.sandbox.pool import Sandbox

MODULE = "reasoning"
COLUMN = "reasoning_gym"
"""Dataset column with the data for the checker: {"dataset", "seed", "level", "index", "entry"}. `entry` is the
package's row as a JSON string, including tuples, because some families don't generate the same row again."""
MAX_ROWS = 100_000
MAX_SEED = 2**31 - 1
_BATCH = 200
_SOURCE = """
from workers.packages.inside import reasoning
rows, score, families = reasoning.rows, reasoning.score, reasoning.families
"""
_GENERATION_LIMITS = Limits(seconds=600, memory_mb=2048, value_bytes=256 * 1024 * 1024)
_SCORING_LIMITS = Limits(seconds=20, memory_mb=1024)


class GenerationFailed(Exception):
    """Failure of a family to generate rows, with the reason for people."""


@dataclass(frozen=True)
class Recipe:
    family: str
    rows: int
    seed: int = 0
    level: int = 0
    """Difficulty level, from 1; 0 for the package's default settings."""


def problem(recipe: Recipe) -> str:
    """Return a sentence that explains what is wrong with a recipe, or "" if it is valid."""
    family = FAMILIES.get(recipe.family)
    if family is None:
        return f"reasoning-gym has no family {recipe.family!r}."
    if not 0 <= recipe.level <= family.levels:
        levels = f"from 1 to {family.levels}" if family.levels else "none"
        return f"{recipe.family} has no difficulty level {recipe.level}; its levels are: {levels}."
    if not 1 <= recipe.rows <= MAX_ROWS:
        return f"Enter a number of rows from 1 to {MAX_ROWS:,}."
    return "" if 0 <= recipe.seed <= MAX_SEED else f"Enter a seed that is a whole number from 0 to {MAX_SEED:,}."


def generate(recipe: Recipe, sandbox: Sandbox) -> Iterator[list[dict[str, Any]]]:
    """Yield rows in batches: {"question", "answer" if there is one, "reasoning_gym"}. Raises GenerationFailed if the
    generator fails."""
    for start in range(0, recipe.rows, _BATCH):
        count = min(_BATCH, recipe.rows - start)
        [outcome] = sandbox.run(
            [Job(_SOURCE, "rows", (recipe.family, recipe.seed, recipe.level, start, count))], _GENERATION_LIMITS
        )
        if outcome.kind is not Kind.OK:
            reason = outcome.message or f"the generation ended as {outcome.kind}."
            raise GenerationFailed(f"{recipe.family} generated no rows: {reason}")
        yield [_row(recipe, start + offset, entry) for offset, entry in enumerate(outcome.value)]


def score(answers: Sequence[tuple[Mapping[str, Any], str]], sandbox: Sandbox) -> list[float | Outcome]:
    """Score pairs of (row's column, answer) with the checkers, and return the scores, or an Outcome for each missing
    score. Raises NotPlain and ValueError for a column that reasoning-gym didn't generate."""
    jobs = [Job(_SOURCE, "score", (*_parse(column), answer)) for column, answer in answers]
    return [outcome.value if outcome.kind is Kind.OK else outcome for outcome in sandbox.run(jobs, _SCORING_LIMITS)]


def _row(recipe: Recipe, index: int, entry: Mapping[str, Any]) -> dict[str, Any]:
    encoded = json.dumps(encode(dict(entry)), ensure_ascii=False, separators=(",", ":"))
    data = {"dataset": recipe.family, "seed": recipe.seed, "level": recipe.level, "index": index, "entry": encoded}
    answer = {} if entry["answer"] is None else {"answer": entry["answer"]}
    return {"question": entry["question"], **answer, COLUMN: data}


def _parse(column: Mapping[str, Any]) -> tuple[str, int, int, dict[str, Any]]:
    try:
        family, seed, level = str(column["dataset"]), int(column["seed"]), int(column.get("level") or 0)
        entry = decode(json.loads(column["entry"]))
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"not a row of reasoning-gym: {error}") from None
    if not isinstance(entry, dict) or family not in FAMILIES:
        raise NotPlain("not a row of reasoning-gym")
    return family, seed, level, entry
