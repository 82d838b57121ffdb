"""Values of environment variables, and errors for invalid ones.

Standard library only: the settings and manage.py use it before Django is loaded.
"""

import os
from pathlib import Path

MIN_TOKEN_LENGTH = 20


class EnvironmentUnusable(Exception):
    """Error for an environment variable with an invalid value; the message names the variable."""


def whole_number(variable: str, default: int, *, minimum: int = 1) -> int:
    value = os.environ.get(variable, "")
    if value and (not value.isdecimal() or int(value) < minimum):
        raise EnvironmentUnusable(f"{variable} must be a whole number of at least {minimum}.")
    return int(value or default)


def one_of(variable: str, choices: tuple[str, ...]) -> str:
    """Return the variable's value, by default the first choice. Raises EnvironmentUnusable for any other value."""
    value = os.environ.get(variable, "") or choices[0]
    if value not in choices:
        raise EnvironmentUnusable(f"{variable} must be one of: {', '.join(choices)}.")
    return value


def password_of(variable: str) -> str:
    """Read the file that a variable names, without final line breaks; return "" if the variable isn't set. Raises
    EnvironmentUnusable if the file can't be read."""
    path = os.environ.get(variable, "")
    if not path:
        return ""
    try:
        return Path(path).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentUnusable(f"{variable}: {path} can't be read: {error}.") from None


def token_of(variable: str) -> str:
    """Return the token in the file that a variable names, or "" if the variable is unset. Raises EnvironmentUnusable if
    the token is too short."""
    token = password_of(variable).strip()
    if os.environ.get(variable, "") and len(token) < MIN_TOKEN_LENGTH:
        raise EnvironmentUnusable(
            f"{variable} must name a file that contains a token of at least {MIN_TOKEN_LENGTH} characters."
        )
    return token
