"""Pages around a form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


def form_page(request: HttpRequest, template: str, context: Mapping[str, Any]) -> HttpResponse:
    """The page with the context's `form`: 422 if what was sent has mistakes, which it then shows."""
    return render(request, template, context, status=422 if context["form"].errors else 200)
