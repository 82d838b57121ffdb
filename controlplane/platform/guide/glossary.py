"""The glossary of GRPO, read once from glossary.toml."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("glossary.toml")


@dataclass(frozen=True)
class Term:
    slug: str
    title: str
    text: str
    metrics: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


@cache
def terms() -> dict[str, Term]:
    """Return the terms by slug, in the file's order."""
    rows = tomllib.loads(FILE.read_text())
    return {
        slug: Term(slug, row["title"], row["text"], tuple(row.get("metrics", ())), tuple(row.get("fields", ())))
        for slug, row in rows.items()
    }


@cache
def by_metric() -> dict[str, Term]:
    return {metric: term for term in terms().values() for metric in term.metrics}


@cache
def by_field() -> dict[str, Term]:
    return {field: term for term in terms().values() for field in term.fields}
