"""Parser of strict JSON with comments and trailing commas, as in other tools' configs.

It refuses duplicate keys, NaN, unpaired surrogates and more than MAX_LEVELS levels. Syntax errors name the line.
"""

import json
import re
from typing import Any

from controlplane.platform.confined.tasks import ConfinedTask

MAX_LEVELS = 32
_STRING = r'"(?:[^"\\\n]|\\.)*"?'
"""Pattern of a string. The closing quote and the end of a comment are optional, so that matching takes linear time."""
_TOKEN = re.compile(_STRING + r"|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_COMMA = re.compile(_STRING + r"|,(?=\s*[}\]])")
_BRACKET = re.compile(_STRING + r"|[{}\[\]]")


class JsonRefused(ValueError):
    """Error for a document that can't be accepted; the message says where and why."""


def parse(text: str) -> Any:
    plain_json = _COMMA.sub(_blank, _TOKEN.sub(_blank, text.removeprefix("\ufeff")))
    _check_levels(plain_json)
    try:
        value = json.loads(plain_json, object_pairs_hook=_object, parse_constant=_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise JsonRefused(f"Line {error.lineno}, column {error.colno}: {error.msg}.") from error
    except UnicodeEncodeError as error:
        raise JsonRefused("It contains an unpaired surrogate.") from error
    except ValueError as error:
        raise (
            error if isinstance(error, JsonRefused) else JsonRefused("It contains a number that is too long.")
        ) from error
    return value


load = ConfinedTask(parse, "Reading this JSON", (JsonRefused,))


def _blank(match: re.Match[str]) -> str:
    """Replace a comment or trailing comma with spaces, which keeps lines and columns; return a string unchanged."""
    token = match[0]
    open_ended = token.startswith("/*") and (len(token) < 4 or not token.endswith("*/"))
    return token if token.startswith('"') or open_ended else re.sub(r"[^\n]", " ", token)


def _check_levels(text: str) -> None:
    level = 0
    for match in _BRACKET.finditer(text):
        level += {"{": 1, "[": 1, "}": -1, "]": -1}.get(match[0], 0)
        if level > MAX_LEVELS:
            line = text.count("\n", 0, match.start()) + 1
            raise JsonRefused(f"Line {line}: it is nested more than {MAX_LEVELS} levels deep.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise JsonRefused(f"{key[:60]!r} occurs twice in one object.")
        values[key] = value
    return values


def _constant(name: str) -> Any:
    raise JsonRefused(f"{name} is not a JSON value.")
