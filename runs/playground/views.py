"""The playground beside the editor: completions to try on, and what the rewards of the form give them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_POST

from controlplane.accounts.roles import operator_required
from controlplane.datasets.queries import ready_versions
from controlplane.rewards import turns
from runs.playground import completions_source, scoring
from runs.playground.completions_source import Offered, Source, SourceKind
from runs.playground.composition import asked
from runs.playground.replay_source import SPREAD, WHICH
from workers.rewards.advantages import AGGREGATIONS

KINDS = {SourceKind.DATASET: "A dataset", SourceKind.RUN: "A run", SourceKind.HAND: "By hand"}


@operator_required
@require_GET
def sample(request: HttpRequest) -> HttpResponse:
    """Other completions: of another row, step or group, or none yet."""
    context = sample_context(request, request.GET)
    answer = render(request, "playground/_sample.html", context)
    if here := _address(request, context["source"]):
        answer["HX-Replace-Url"] = here
    return answer


@operator_required
@require_GET
def runs(request: HttpRequest) -> HttpResponse:
    """Runs whose completions can be had, for the playground or (for=replay) the replay."""
    wanted = request.GET.get("q", "")
    found = completions_source.runs_with_completions(request, wanted)
    context = {"runs": found, "wanted": wanted, "replay": request.GET.get("for") == "replay"}
    return render(request, "rewards/_runs.html", context)


@operator_required
@require_POST
def try_out(request: HttpRequest) -> HttpResponse:
    config, source = asked(request), completions_source.read(request, request.POST)
    texts, numbers = request.POST.getlist("completion"), request.POST.getlist("of")
    completions = completions_source.written(source, texts, numbers)
    page = request.POST.get("page", "")[:32]
    ask = bool(request.POST.get("ask"))
    own = turns.turn(
        scoring.ASKING if ask else scoring.SECONDS, of=f"{request.session.session_key}.{page}" if page else ""
    )
    trial = scoring.try_on(
        config.specs,
        source.row,
        completions,
        aggregation=config.aggregation,
        own=own,
        ask=ask,
    )
    numbers_of = {id(one): number for number, one in source.stored.items()}
    in_run = {one.of: one for one in source.offered}
    given = [in_run.get(numbers_of.get(id(one), "")) for one in completions]
    context = {
        "trial": trial,
        "columns": list(zip(trial.columns, config.places, strict=True)),
        "rows": list(zip(trial.group, given, strict=True)),
        "problems": config.problems,
        "source_problem": source.problem if source.kind == SourceKind.RUN and not source.stored else "",
        "normalised": config.aggregation == AGGREGATIONS[1],
        "of_run": bool(source.stored),
    }
    return render(request, "playground/_trial.html", context)


def sample_context(request: HttpRequest, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What playground/_playground.html needs, for the source that the form or the address names. Completions that were
    posted stay as they were written."""
    source = completions_source.read(request, fields)
    if request.method == "POST" and isinstance(fields, QueryDict) and fields.getlist("completion"):
        numbers = [*fields.getlist("of"), *[""] * completions_source.MOST]
        source.offered = [
            Offered(text, number) for text, number in zip(fields.getlist("completion"), numbers, strict=False)
        ]
    return {
        "source": source,
        "page_key": secrets.token_hex(8),
        "kinds": list(KINDS.items()),
        "dataset_versions": ready_versions(request),
        "hand": {name: fields.get(name, "") for name in ("prompt", "answer", "tests")},
        "replay_run": fields.get("replay", ""),
        "which": WHICH,
        "spread": SPREAD,
    }


def _address(request: HttpRequest, source: Source) -> str:
    """The page's own address with the source in it, so that a reload comes back to it."""
    path = urlsplit(request.headers.get("HX-Current-URL", "")).path
    if not path.startswith("/rewards/"):
        return ""
    said: dict[str, object] = {"from": source.kind}
    if source.kind == SourceKind.DATASET and source.version:
        said |= {"version": source.version.pk, "sample": source.place}
    elif source.kind == SourceKind.RUN and source.run:
        said |= {"run": source.run.pk, "group": source.group.pk if source.group else ""}
    return f"{path}?{urlencode(said)}"
