"""The results of the command palette."""

from __future__ import annotations

from dataclasses import asdict

from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from controlplane.platform.templatetags.figures import ends
from controlplane.platform.templatetags.lucide import lucide
from runs.pages.search import finding


@require_safe
def search(request: HttpRequest) -> JsonResponse:
    """?q=words; without them, ?recent= addresses of pages that this browser has shown, the newest first."""
    text = request.GET.get("q", "")
    hits = finding.search(request, text) if text.strip() else finding.begin(request, request.GET.getlist("recent"))
    drawn = [{"icon": lucide(hit.icon, size=16), "parts": ends(hit.title)[0]} for hit in hits]
    return JsonResponse({"items": [asdict(hit) | more for hit, more in zip(hits, drawn, strict=True)]})
