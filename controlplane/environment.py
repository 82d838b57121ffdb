"""Numbers that an installation chooses in the environment, and what is said of one that can't be used.

Standard library only: the settings and manage.py use it before Django is there.
"""

from __future__ import annotations

import os


class EnvironmentUnusable(Exception):
    """A variable of the environment says what can't be used; the text names it."""


def whole(variable: str, default: int, *, least: int = 1) -> int:
    given = os.environ.get(variable, "")
    if given and (not given.isdecimal() or int(given) < least):
        raise EnvironmentUnusable(f"{variable} must be a whole number from {least} on.")
    return int(given or default)
