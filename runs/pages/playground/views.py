"""The playground next to the editor: completions, and their scores with the form's rewards."""

import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_POST

from controlplane.catalogue.datasets.queries import ready_versions
from controlplane.catalogue.rewards import turns
from controlplane.platform.accounts.roles import operator_required
from controlplane.platform.templatetags.figures import sig
from runs.insight.scoring import scoring
from runs.insight.scoring.composition import posted_state
from runs.insight.scoring.scoring import PlaygroundTrial, ScoredCompletion, ScoredComponent
from runs.pages.playground import completions_source
from runs.pages.playground.completions_source import CompletionSource, OfferedCompletion, SourceKind
from runs.pages.playground.replay_source import SELECTIONS, SPREAD_OVER_RUN
from workers.rewards.advantages import AGGREGATIONS

KINDS = {SourceKind.DATASET: "A dataset", SourceKind.RUN: "A run", SourceKind.HAND: "By hand"}


@operator_required
@require_GET
def sample(request: HttpRequest) -> HttpResponse:
    context = sample_context(request, request.GET)
    response = render(request, "pages/playground/_sample.html", context)
    if address := _address(request, context["source"]):
        response["HX-Replace-Url"] = address
    return response


@operator_required
@require_GET
def runs(request: HttpRequest) -> HttpResponse:
    """List runs with stored completions, for the playground or, with ?for=replay, for the replay."""
    phrase = request.GET.get("q", "")
    matches = completions_source.runs_with_completions(request, phrase)
    context = {"runs": matches, "phrase": phrase, "replay": request.GET.get("for") == "replay"}
    return render(request, "catalogue/rewards/_runs.html", context)


@operator_required
@require_POST
def try_out(request: HttpRequest) -> HttpResponse:
    config, source = posted_state(request), completions_source.read(request, request.POST)
    texts = request.POST.getlist("completion")[: completions_source.MAX_COMPLETIONS]
    completions = completions_source.to_score(source, texts, request.POST.getlist("of"))
    page = request.POST.get("page", "")[:32]
    ask = bool(request.POST.get("ask"))
    scoring_turn = turns.turn(
        scoring.ASKING_SECONDS if ask else scoring.SECONDS,
        requester=f"{request.session.session_key}.{page}" if page else "",
    )
    trial = scoring.try_on(
        config.specs,
        source.row,
        list(completions.values()),
        aggregation=config.aggregation,
        trial_turn=scoring_turn,
        ask=ask,
    )
    columns = list(zip(trial.columns, config.positions, strict=True))
    scored_by_completion = dict(zip(completions, trial.group, strict=True))
    context = {
        "trial": trial,
        "columns": columns,
        "beside": [(index, _cells(columns, scored_by_completion.get(index))) for index in range(len(texts))],
        "problems": config.problems,
        "source_problem": source.problem if source.kind == SourceKind.RUN and not source.stored else "",
        "next_step": _next_step(trial, source),
        "verdict": _verdict(trial),
    }
    return render(request, "pages/playground/_trial.html", context)


def _next_step(trial: PlaygroundTrial, source: CompletionSource) -> str:
    """Return a sentence that says what is missing for a score, or "" if nothing is."""
    if not trial.columns:
        return "Add a component to see scores."
    if trial.group:
        return ""
    if source.kind == SourceKind.RUN and source.run is None:
        return "Choose a run to see the scores of its completions."
    return "Write a completion to see its scores."


def _verdict(trial: PlaygroundTrial) -> tuple[str, str]:
    """Return a tone and sentences about what the scores mean for the group's advantages."""
    if not trial.counted:
        return "muted", "None of these components can be scored here, so there is no total."
    total = sig(trial.mean)
    if len(trial.group) == 1:
        return (
            "muted",
            f"Total {total}. A single completion can't be compared, so it has no advantage. Add another one.",
        )
    if trial.flat:
        reason = "No component applies to these completions" if trial.mean is None else "All totals are equal"
        return "warn", f"{reason}, so every advantage is 0: the model learns nothing from this group."
    explanation = (
        "Each component is normalized within the group, then their weighted sum over the batch (here only this group)."
        if trial.aggregation == AGGREGATIONS[1]
        else "The advantage is the distance from the mean in standard deviations: completions above the mean become "
        "more likely, those below less likely."
    )
    return "muted", f"Group mean {total}, standard deviation {sig(trial.deviation)}. {explanation}"


def _cells(columns: list[tuple[ScoredComponent, int]], scored_completion: ScoredCompletion | None) -> dict[str, Any]:
    if scored_completion is None or not scored_completion.scores:
        return {}
    return {
        "scored": scored_completion,
        "cells": [(*numbered, cell) for numbered, cell in zip(columns, scored_completion.scores, strict=True)],
    }


def sample_context(request: HttpRequest, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Build the context of playground/_playground.html for the source that form fields or query
    parameters name. Posted completions keep their edited texts."""
    source = completions_source.read(request, fields)
    if request.method == "POST" and isinstance(fields, QueryDict) and fields.getlist("completion"):
        numbers = [*fields.getlist("of"), *[""] * completions_source.MAX_COMPLETIONS]
        source.offered = [
            OfferedCompletion(text, number) for text, number in zip(fields.getlist("completion"), numbers, strict=False)
        ]
    return {
        "source": source,
        "page_key": secrets.token_hex(8),
        "kinds": list(KINDS.items()),
        "dataset_versions": ready_versions(request),
        "hand": {name: fields.get(name, "") for name in ("prompt", "answer", "tests")},
        "replay_run": fields.get("replay", ""),
        "selections": SELECTIONS,
        "spread": SPREAD_OVER_RUN,
    }


def _address(request: HttpRequest, source: CompletionSource) -> str:
    """Return the page's address with the source in it, so that a reload restores it; "" on other pages."""
    path = urlsplit(request.headers.get("HX-Current-URL", "")).path
    if not path.startswith("/rewards/"):
        return ""
    parameters: dict[str, object] = {"from": source.kind}
    if source.kind == SourceKind.DATASET and source.version:
        parameters |= {"version": source.version.pk, "sample": source.index}
    elif source.kind == SourceKind.RUN and source.run:
        parameters |= {"run": source.run.pk, "group": source.group.pk if source.group else ""}
    return f"{path}?{urlencode(parameters)}"
