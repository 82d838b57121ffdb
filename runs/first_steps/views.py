"""The start page, and the page of a recipe."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from controlplane.accounts.roles import operator_required, person
from controlplane.datasets.errors import DatasetError
from controlplane.http.htmx import STOP_POLLING
from runs.first_steps import recipes
from runs.first_steps.steps import steps


@require_safe
def start(request: HttpRequest) -> HttpResponse:
    return render(request, "first_steps/start.html", {"steps": steps(), "recipes": recipes.RECIPES})


@require_safe
def recipe(request: HttpRequest, slug: str) -> HttpResponse:
    """The page; an htmx request gets its parts only, and asks no more once the dataset is read."""
    parts = recipes.parts(_named(slug))
    if request.headers.get("HX-Request") == "true":
        return render(
            request, "first_steps/_parts.html", {"parts": parts}, status=200 if parts.at_work else STOP_POLLING
        )
    return render(request, "first_steps/recipe.html", {"parts": parts})


@require_POST
@operator_required
def prepare(request: HttpRequest, slug: str) -> HttpResponseBase:
    chosen = _named(slug)
    try:
        recipes.prepare(chosen, person(request))
    except DatasetError as error:
        messages.warning(request, str(error))
    return redirect("recipe", chosen.slug)


def _named(slug: str) -> recipes.Recipe:
    found = recipes.find(slug)
    if found is None:
        raise Http404("There is no such recipe.")
    return found
