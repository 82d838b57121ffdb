"""The pages of the glossary and the documentation, and the end of a person's tour."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from controlplane.platform.accounts.roles import person
from controlplane.platform.guide import documents
from controlplane.platform.guide.glossary import terms


@require_safe
def glossary(request: HttpRequest) -> HttpResponse:
    return render(request, "platform/guide/glossary.html", {"terms": terms().values(), "others": documents.listed()})


@require_safe
def document(request: HttpRequest, document: str = "") -> HttpResponse:
    chosen = documents.find(document)
    if chosen is None:
        raise Http404("There is no such document here.")
    context = {"document": chosen, "others": documents.listed(), "rendered": documents.render(chosen)}
    return render(request, "platform/guide/document.html", context)


@require_POST
def tour_seen(request: HttpRequest) -> HttpResponse:
    """Record the end of the tour, so that it is not shown to this person again unless requested."""
    user = person(request)
    user.toured_at = timezone.now()
    user.save(update_fields=["toured_at"])
    return HttpResponse(status=204)
