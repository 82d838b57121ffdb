"""Pages of the API's lists."""

from __future__ import annotations

from django.db.models import QuerySet

from controlplane.platform.http import keyset
from controlplane.platform.http.keyset import M
from runs.api.access import Problem

MOST = 200


def page(rows: QuerySet[M], cursor: str, limit: int, *, by: str = "") -> tuple[list[M], str]:
    """As `keyset.page`; raises Problem for a cursor that can't be read."""
    try:
        return keyset.page(rows, cursor, limit, by=by)
    except keyset.BadCursor:
        fix = "Send the next_cursor of the page before, or none."
        raise Problem(422, "This cursor can't be read.", where="cursor", fix=fix) from None
