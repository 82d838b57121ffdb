"""Pagination by cursor, newest first, without skipped or repeated rows while rows are added; parsing of parameters."""

import base64
import json
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import unquote

from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest

M = TypeVar("M", bound=Model)


class BadCursor(ValueError):
    """Error for a cursor that can't be read."""


def page(rows: QuerySet[M], cursor: str, limit: int, *, by: str = "") -> tuple[list[M], str]:
    """Return at most `limit` rows after `cursor`, and the cursor of the next page or "" if there is none.

    `by` is a column with a time; rows with the same time are ordered by key. Raises BadCursor if `cursor` can't be
    read.
    """
    if cursor:
        rows = rows.filter(_after(cursor, by))
    order = [f"-{by}", "-pk"] if by else ["-pk"]
    found_rows = list(rows.order_by(*order)[: limit + 1])
    if len(found_rows) <= limit:
        return found_rows, ""
    last_row = found_rows[limit - 1]
    key = [getattr(last_row, by).isoformat(), last_row.pk] if by else [last_row.pk]
    return found_rows[:limit], base64.urlsafe_b64encode(json.dumps(key).encode()).decode()


def _after(cursor: str, by: str) -> Q:
    try:
        key: list[Any] = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        if by:
            time, pk = datetime.fromisoformat(key[0]), str(key[1])
            if time.tzinfo is None or "\0" in pk:
                raise ValueError
            return Q(**{f"{by}__lt": time}) | Q(**{by: time, "pk__lt": pk})
        [number] = key
        if type(number) is not int or abs(number) >= 2**62:
            raise ValueError
        return Q(pk__lt=number)
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError):
        raise BadCursor from None


def whole_parameter(request: HttpRequest, name: str, default: int, lowest: int, highest: int) -> int:
    """Return the parameter as a whole number, clamped to the limits, or the default if it isn't a number."""
    try:
        return max(lowest, min(highest, int(request.GET[name])))
    except (KeyError, ValueError):
        return default


def split_list(value: str) -> list[str]:
    """Return the distinct items of a list that urlstate.js wrote into one value, escaping commas and percent signs."""
    return list(dict.fromkeys(unquote(part) for part in value.split(",") if part))
