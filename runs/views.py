"""The pages of runs: the list, one run with its tabs, what its charts read, and the stop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from django.contrib import messages
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_POST, require_safe

from controlplane.accounts.roles import operator_required, person
from runs import charts, dryrun, launching, queries, runpage, stopping
from runs.limits import QueueFull
from runs.listing import KINDS, listing
from runs.models import Attempt, Run
from runs.pump import from_store
from runs.sentences import STOPS
from runs.spec import spec_of
from runs.states import ACTIVE, RunStatus
from workers.contract import LOG_NAMES, EventKind, StopMode

TABS = {
    "charts": "Charts",
    "completions": "Completions",
    "logs": "Logs",
    "events": "Events",
    "checkpoints": "Checkpoints",
    "spec": "Spec",
}
POINTS = 500
MOST_POINTS = 5000
LOG_PART = 256 * 1024
LOG_TYPE = "text/plain; charset=utf-8"


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    return redirect("runs")


@require_safe
def runs(request: HttpRequest) -> HttpResponse:
    """The list; an htmx request gets the rows alone."""
    partial = request.headers.get("HX-Request") == "true"
    context = {
        "list": listing(request),
        "statuses": ["active", *RunStatus],
        "kinds": [(kind, words) for kind, (words, _) in KINDS.items()],
        "may_operate": person(request).may_operate,
    }
    return render(request, "runs/_list.html" if partial else "runs/list.html", context)


@require_safe
def run(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    tab = request.GET.get("tab", "charts")
    if tab not in TABS:
        tab = "charts"
    spec, gpus = spec_of(run), _gpus(run.latest())
    groups = charts.plan(spec, gpus)
    tiles = charts.tiles(spec, gpus)
    page = {
        "id": run.pk,
        "socket": f"/ws/runs/{run.pk}/",
        "series": reverse("run_series", args=[run.pk]),
        "head": reverse("run_head", args=[run.pk]),
        "charts": charts.as_json(groups),
        "marked": sorted(charts.MARKED),
        "events": [_mark(e) for e in queries.events(run) if e["kind"] in charts.MARKED],
        "tab": tab,
    }
    context = {
        **runpage.head(run, person(request)),
        "groups": groups,
        "tiles": [(tile, None if tile.note else run.last_metrics.get(tile.metric)) for tile in tiles],
        "page": page,
        "tabs": [
            (name, label, reverse(f"run_{name}", args=[run.pk])) for name, label in TABS.items() if name != "charts"
        ],
        "tab": tab,
    }
    return render(request, "runs/run.html", context)


@require_safe
def head(request: HttpRequest, run_id: str) -> HttpResponse:
    """What changes with the run's state, for the page to swap in."""
    return render(request, "runs/_head.html", runpage.head(queries.run_for(request, run_id), person(request)))


@require_safe
@gzip_page
def series(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    asked = request.GET.get("metrics", "")
    names = asked.split(",") if asked else charts.metrics(charts.plan(spec_of(run), _gpus(run.latest())))
    answer = queries.series(run, names, _whole(request, "points", POINTS, 2, MOST_POINTS))
    return JsonResponse(answer, json_dumps_params={"separators": (",", ":")})


@require_safe
def completions(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    steps = queries.sample_steps(run)
    asked = _whole(request, "step", -1, -1, 2**31)
    step = asked if asked in steps else (steps[-1] if steps else None)
    at = steps.index(step) if step is not None else 0
    rewards = [reward.name for reward in spec_of(run).rewards]
    groups = [_group(row.data, rewards) for row in queries.samples(run, step)]
    context = {
        "run": run,
        "live": run.latest().status in ACTIVE,
        "step": step,
        "newest": step is not None and step == steps[-1],
        "first_step": steps[0] if steps else None,
        "last_step": steps[-1] if steps else None,
        "earlier": steps[at - 1] if at > 0 else None,
        "later": steps[at + 1] if step is not None and at + 1 < len(steps) else None,
        "groups": groups,
        "rewards": rewards,
        "widest": max((abs(c["advantage"] or 0) for g in groups for c in g["completions"]), default=0) or 1,
    }
    return render(request, "runs/_completions.html", context)


@require_safe
def logs(request: HttpRequest, run_id: str) -> HttpResponse:
    """The logs tab; its text comes from `log`."""
    run = queries.run_for(request, run_id)
    attempts = sorted(run.attempts.all(), key=lambda a: -a.number)
    attempt = _attempt(run, request)
    sizes = queries.log_sizes(attempt)
    found = [name for name in ("trainer", "vllm", "supervisor") if name in sizes]
    has_server = spec_of(run).hardware.server is not None
    names = [name for name in ("trainer", "vllm", "supervisor") if name != "vllm" or has_server or name in found]
    context = {"run": run, "attempt": attempt, "attempts": attempts, "names": names, "sizes": sizes}
    return render(request, "runs/_logs.html", context)


@require_safe
def log(request: HttpRequest, run_id: str, name: str) -> HttpResponseBase:
    """Bytes of a log from an offset (negative: from the end), or the whole file to keep; as text and never as anything
    a browser would run."""
    run = queries.run_for(request, run_id)
    if name not in LOG_NAMES:
        raise Http404(f"There is no log {name}.")
    attempt = _attempt(run, request)
    if "download" in request.GET:
        return _download(request, attempt, name)
    limit = _whole(request, "limit", LOG_PART, 1, 4 * LOG_PART)
    part = queries.log(attempt, name, _whole(request, "offset", 0, -(2**40), 2**40), limit)
    response = HttpResponse(part.data, content_type=LOG_TYPE)
    response["X-Size"] = str(part.size)
    response["X-Offset"] = str(part.offset)
    return response


def _download(request: HttpRequest, attempt: Attempt, name: str) -> StreamingHttpResponse:
    """What is stored now, block by block: a log may be larger than the memory."""
    size = queries.log_sizes(attempt).get(name, 0)
    blocks = queries.log_blocks(attempt, name, size)
    # Under ASGI Django would gather a plain iterator in memory first.
    answer = StreamingHttpResponse(_asked_for(blocks) if isinstance(request, ASGIRequest) else blocks)
    answer["Content-Type"] = LOG_TYPE
    answer["Content-Length"] = str(size)
    answer["Content-Disposition"] = f'attachment; filename="{attempt.pk}-{name}.log"'
    return answer


async def _asked_for(blocks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The next block once the browser has taken the one before."""
    while block := await from_store(lambda: next(blocks, b"")):
        yield block


@require_safe
def events(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    lines = queries.events(run)
    lines.reverse()
    return render(request, "runs/_events.html", {"run": run, "events": lines, "loud": charts.MARKED})


@require_safe
def checkpoints(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    saved = run.events.filter(kind=EventKind.CHECKPOINT).select_related("attempt__host").order_by("-seq")
    context = {"run": run, "checkpoints": saved, "live": run.latest().status in ACTIVE}
    return render(request, "runs/_checkpoints.html", context)


@require_safe
def spec(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    context = {"run": run, "spec": spec_of(run), "text": json.dumps(run.spec, indent=2, ensure_ascii=False)}
    if "download" in request.GET:
        response = HttpResponse(context["text"], content_type="application/json")
        response["Content-Disposition"] = f'attachment; filename="{run.pk}-spec.json"'
        return response
    return render(request, "runs/_spec.html", {**context, **dryrun.shown(lambda: dryrun.of_run(run))})


@require_POST
@operator_required
def stop(request: HttpRequest, run_id: str) -> HttpResponseBase:
    run = queries.run_for(request, run_id)
    mode = request.POST.get("mode")
    if mode not in set(StopMode):
        return HttpResponse("Say mode=save or mode=now.", status=400, content_type="text/plain")
    attempt = run.latest()
    if not stopping.request_stop(attempt, StopMode(mode), person(request)):
        attempt.refresh_from_db()
        by = attempt.stop_requested_by
        if attempt.status not in ACTIVE:
            messages.info(request, f"{run.name} had ended already; nothing was stopped.")
        elif by != person(request) or attempt.stop_mode != mode:
            who = f" by {by.get_username()}" if by else ""
            messages.info(request, f"{run.name} was asked to {STOPS[attempt.stop_mode]} already{who}.")
    return redirect("run", run.pk)


@require_POST
@operator_required
def stop_several(request: HttpRequest) -> HttpResponseBase:
    mode = request.POST.get("mode")
    if mode not in set(StopMode):
        return HttpResponse("Say mode=save or mode=now.", status=400, content_type="text/plain")
    chosen = queries.runs_for(request).filter(pk__in=queries.readable(request.POST.getlist("run")))
    done = stopping.request_stops([run.latest() for run in chosen], StopMode(mode), person(request))
    if done.asked or done.cancelled:
        messages.success(request, str(done))
    else:
        messages.info(request, f"Nothing was stopped. {done}")
    return redirect("runs")


@require_POST
@operator_required
def resume(request: HttpRequest, run_id: str) -> HttpResponseBase:
    run = queries.run_for(request, run_id)
    try:
        launching.resume(run, person(request))
    except (launching.NotResumable, QueueFull) as error:
        messages.error(request, str(error))
    return redirect("run", run.pk)


def _gpus(attempt: Attempt) -> tuple[int, ...]:
    placement: dict[str, Any] = attempt.placement or {}
    return (*placement.get("gpus", ()), *placement.get("server_gpus", ()))


def _mark(event: queries.EventView) -> dict[str, Any]:
    return {"id": event["id"], "at": event["at"], "step": event["step"], "kind": event["kind"], "text": event["text"]}


def _attempt(run: Run, request: HttpRequest) -> Attempt:
    """The attempt that `?attempt=` names; the latest one without it."""
    number = _whole(request, "attempt", 0, 0, 10**6)
    return next((a for a in run.attempts.all() if a.number == number), run.latest())


def _group(data: dict[str, Any], rewards: list[str]) -> dict[str, Any]:
    """One prompt group for the template: every completion with its rewards in the config's order."""
    completions = [
        {**c, "scores": [(c.get("rewards") or {}).get(name) for name in rewards], "advantage": c.get("advantage")}
        for c in data.get("completions", [])
    ]
    totals = [c.get("reward") for c in completions]
    return {**data, "completions": completions, "flat": len(completions) > 1 and len(set(totals)) == 1}


def _whole(request: HttpRequest, name: str, default: int, lowest: int, highest: int) -> int:
    """A whole number of the query string; anything else counts as not said."""
    try:
        return max(lowest, min(highest, int(request.GET[name])))
    except (KeyError, ValueError):
        return default
