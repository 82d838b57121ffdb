"""The words of GRPO: glossary.toml, read once."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("glossary.toml")


@dataclass(frozen=True)
class Term:
    slug: str
    """Its anchor on the glossary page."""
    title: str
    text: str
    metrics: tuple[str, ...] = ()
    """Metrics whose charts and tiles lead to it."""
    fields: tuple[str, ...] = ()
    """Fields of New run that lead to it."""


@cache
def terms() -> dict[str, Term]:
    """Read entries by slug, in the file's order."""
    read = tomllib.loads(FILE.read_text())
    return {
        slug: Term(slug, row["title"], row["text"], tuple(row.get("metrics", ())), tuple(row.get("fields", ())))
        for slug, row in read.items()
    }


@cache
def by_metric() -> dict[str, Term]:
    return {metric: term for term in terms().values() for metric in term.metrics}


@cache
def by_field() -> dict[str, Term]:
    return {field: term for term in terms().values() for field in term.fields}
