"""Pages with a form, and strings that are shown once, after the redirect that follows.

The strings are kept in the session, encrypted, so that the session table reveals no token; a message would put it in a
cookie.
"""

import json
from collections.abc import Mapping
from typing import Any

from django.forms import BaseForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.platform.sealing import seal, unseal


def form_page(request: HttpRequest, template: str, context: Mapping[str, Any]) -> HttpResponse:
    """Render a page that shows the context's `form` and its errors, with status 422 if there are any."""
    return render(request, template, context, status=422 if context["form"].errors else 200)


def import_page(
    request: HttpRequest, template: str, problem: str, limit: int, *, echo_limit: int | None = None
) -> HttpResponse:
    """Render the form for importing a document of at most `limit` bytes. After a refusal it shows the problem and the
    document's text, unless that has more than `echo_limit` characters."""
    text = request.POST.get("text", "")
    if echo_limit is not None and len(text) > echo_limit:
        text = ""
    context = {"problem": problem, "text": text, "most": limit}
    return render(request, template, context, status=422 if problem else 200)


def wrong_fields(form: BaseForm, names: Mapping[str, str] | None = None) -> list[tuple[str, str, str]]:
    """Return (id on the page, label, errors) of each field with an error, for components/wrong_fields.html.

    `names` are labels by field, which replace those of the form.
    """
    return [
        (field.id_for_label, (names or {}).get(field.name, str(field.label)), " ".join(map(str, field.errors)))
        for field in form
        if field.errors
    ]


def keep_once(request: HttpRequest, key: str, *strings: str) -> None:
    """Keep strings for the page that calls `take_once` with the same key."""
    request.session[f"once {key}"] = seal(json.dumps(strings))


def take_once(request: HttpRequest, key: str) -> list[str]:
    """Remove and return the kept strings at the first GET; return an empty list otherwise."""
    sealed = request.session.pop(f"once {key}", None) if request.method == "GET" else None
    return json.loads(unseal(sealed)) if sealed else []
