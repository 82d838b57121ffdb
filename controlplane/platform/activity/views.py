"""The Events page: who did what in this installation."""

from __future__ import annotations

import csv
import io

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from controlplane.platform.accounts.roles import person
from controlplane.platform.activity import queries
from controlplane.platform.activity.forms import ActivityFilterForm
from controlplane.platform.http import keyset
from controlplane.platform.http.spreadsheet import safe

PER_PAGE = 50
MOST_IN_CSV = 50_000
"""The newest; a narrower time gives the others."""
HEADINGS = ("at", "by", "token", "kind", "id", "name", "what")


@require_safe
def events(request: HttpRequest) -> HttpResponse:
    user = person(request)
    form = ActivityFilterForm(user, request.GET)
    found = queries.matching(queries.acts_for(user), form.wanted())
    cursor = request.GET.get("cursor", "")[:300]
    try:
        acts, older = keyset.page(found, cursor, PER_PAGE, by="at")
    except keyset.BadCursor:  # an address that somebody has cut: from the newest one on
        acts, older = keyset.page(found, "", PER_PAGE, by="at")
    asked = request.GET.copy()
    asked.pop("cursor", None)
    context = {
        "form": form,
        "events": queries.shown(acts, user),
        "filtered": any(asked.values()),
        "query": asked.urlencode(),
        "older": older,
        "newest": not cursor,
    }
    return render(request, "platform/activity/events.html", context)


@require_safe
def events_csv(request: HttpRequest) -> HttpResponse:
    """The acts of the page's filters, not only those of one page."""
    user = person(request)
    found = queries.matching(queries.acts_for(user), ActivityFilterForm(user, request.GET).wanted())
    target = io.StringIO()
    writer = csv.writer(target)
    writer.writerow(HEADINGS)
    columns = ("at", "by_name", "token", "kind", "key", "name", "what")
    for at, *others in found.values_list(*columns)[:MOST_IN_CSV].iterator():
        writer.writerow([at.isoformat(), *map(safe, others)])
    answer = HttpResponse(target.getvalue(), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="events.csv"'
    return answer
