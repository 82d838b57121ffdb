"""The Events page: who did what in this installation."""

import csv
import io

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from controlplane.platform.accounts.roles import person
from controlplane.platform.activity import queries
from controlplane.platform.activity.forms import ActivityFilterForm
from controlplane.platform.http import keyset
from controlplane.platform.http.streams import csv_cell

PER_PAGE = 50
MAX_IN_CSV = 50_000
"""Maximum number of acts in the file, the newest ones. Filters by time select older ones."""
HEADINGS = ("at", "by", "token", "kind", "id", "name", "what")


@require_safe
def events(request: HttpRequest) -> HttpResponse:
    user = person(request)
    form = ActivityFilterForm(user, request.GET)
    matching_acts = queries.matching(queries.acts_for(user), form.filters())
    cursor = request.GET.get("cursor", "")[:300]
    try:
        acts, older_cursor = keyset.page(matching_acts, cursor, PER_PAGE, by="at")
    except keyset.BadCursor:  # a truncated address: start with the newest
        acts, older_cursor = keyset.page(matching_acts, "", PER_PAGE, by="at")
    query = request.GET.copy()
    query.pop("cursor", None)
    context = {
        "form": form,
        "events": queries.with_addresses(acts, user),
        "filtered": any(query.values()),
        "query": query.urlencode(),
        "older": older_cursor,
        "newest": not cursor,
    }
    return render(request, "platform/activity/events.html", context)


@require_safe
def events_csv(request: HttpRequest) -> HttpResponse:
    """Download all acts that match the page's filters, not only those of one page."""
    user = person(request)
    acts = queries.matching(queries.acts_for(user), ActivityFilterForm(user, request.GET).filters())
    target = io.StringIO()
    writer = csv.writer(target)
    writer.writerow(HEADINGS)
    columns = ("at", "by_name", "token", "kind", "key", "name", "what")
    for time, *cells in acts.values_list(*columns)[:MAX_IN_CSV].iterator():
        writer.writerow([time.isoformat(), *map(csv_cell, cells)])
    response = HttpResponse(target.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="events.csv"'
    return response
