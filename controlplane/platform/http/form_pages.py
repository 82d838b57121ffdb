"""Pages around a form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.forms import BaseForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


def form_page(request: HttpRequest, template: str, context: Mapping[str, Any]) -> HttpResponse:
    """The page with the context's `form`: 422 if what was sent has mistakes, which it then shows."""
    return render(request, template, context, status=422 if context["form"].errors else 200)


def wrong_fields(form: BaseForm, names: Mapping[str, str] | None = None) -> list[tuple[str, str, str]]:
    """(id on the page, label, sentences) of each field with an error, in the form's order, for
    components/wrong_fields.html. `names`: what fields are called there instead of their label."""
    return [
        (field.id_for_label, (names or {}).get(field.name, str(field.label)), " ".join(map(str, field.errors)))
        for field in form
        if field.errors
    ]
