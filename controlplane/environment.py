"""Numbers that an installation chooses in the environment, and what is said of one that can't be used.

Standard library only: the settings and manage.py use it before Django is there.
"""

from __future__ import annotations

import os
from pathlib import Path


class EnvironmentUnusable(Exception):
    """A variable of the environment says what can't be used; the text names it."""


def whole(variable: str, default: int, *, least: int = 1) -> int:
    given = os.environ.get(variable, "")
    if given and (not given.isdecimal() or int(given) < least):
        raise EnvironmentUnusable(f"{variable} must be a whole number from {least} on.")
    return int(given or default)


def one_of(variable: str, choices: tuple[str, ...]) -> str:
    """The first choice is the default."""
    given = os.environ.get(variable, "") or choices[0]
    if given not in choices:
        raise EnvironmentUnusable(f"{variable} must be one of: {', '.join(choices)}.")
    return given


def password_of(variable: str) -> str:
    """The text in the file that a variable names, without its last line break; "" when it names none."""
    path = os.environ.get(variable, "")
    if not path:
        return ""
    try:
        return Path(path).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentUnusable(f"{variable}: {path} can't be read: {error}.") from None
