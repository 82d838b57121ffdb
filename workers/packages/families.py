"""The task families of reasoning-gym 0.1.25, as the dataset page offers them. A test compares them with the package."""

from dataclasses import dataclass
from pathlib import Path

VERSION = "0.1.25"
WITHOUT_ANSWER = frozenset(("boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"))
"""Families whose tasks have many right answers, so that their rows contain none."""


@dataclass(frozen=True)
class Family:
    kind: str
    """The package's own category."""
    levels: int
    """The number of levels of difficulty; 0: default settings only. Levels that fail in the package are left out."""
    about: str
    """The task in a few words."""


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
"""Name -> family, in the order of their kinds."""
