"""Task families of reasoning-gym 0.1.25, as offered on the dataset page. A test compares them with the package."""

from dataclasses import dataclass
from pathlib import Path

VERSION = "0.1.25"
WITHOUT_ANSWER = frozenset(("boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"))
"""Families whose tasks have many correct answers, so that their rows contain none."""


@dataclass(frozen=True)
class Family:
    kind: str
    levels: int
    """Number of difficulty levels, without those that fail in the package; 0 if there are only default settings."""
    about: str


def _read() -> dict[str, Family]:
    families, kind = {}, ""
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines()[1:]:
        if line.startswith("["):
            kind = line.strip("[]")
        else:
            name, levels, about = (part.strip() for part in line.split("|"))
            families[name] = Family(kind, int(levels), about)
    return families


FAMILIES = _read()
