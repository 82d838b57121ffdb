"""A run's logs and timeline."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict

from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from controlplane.platform.http.keyset import whole_parameter
from runs.engine import queries
from runs.engine.models import Attempt, Run
from runs.engine.states import FINAL
from runs.insight.live.pump import from_store
from runs.pages.run_page import log_search, timeline
from runs.pages.run_page.receipt import receipt_of
from workers.contract.wire.names import LOG_LEFT_OUT, LOG_NAMES, SERVER_ROLES, STACKS

LOG_PART = 256 * 1024
LOG_TYPE = "text/plain; charset=utf-8"


@require_safe
def logs(request: HttpRequest, run_id: str) -> HttpResponse:
    """Render the logs tab, without the logs' text, which `log` sends."""
    run = queries.run_for(request, run_id)
    attempts = sorted(run.attempts.all(), key=lambda a: -a.number)
    attempt = _attempt(run, request)
    context = {
        "run": run,
        "attempt": attempt,
        "attempts": attempts,
        "logs": _listed_logs(run, queries.log_sizes(attempt)),
        "errors": log_search.ERROR,
        "left_out": LOG_LEFT_OUT,
    }
    return render(request, "pages/run_page/_logs.html", context)


def _listed_logs(run: Run, sizes: dict[str, int]) -> dict[str, int]:
    """Return the sizes of the existing and the expected logs by name."""
    hardware = run.spec.get("hardware")
    has_server = isinstance(hardware, dict) and bool(hardware.get("server"))
    expected_logs = {"trainer", "supervisor", *(["vllm"] if has_server else [])}
    order = ("trainer", *SERVER_ROLES, "download", "supervisor", STACKS)
    return {name: sizes.get(name, 0) for name in order if name in sizes or name in expected_logs}


@require_safe
def log(request: HttpRequest, run_id: str, name: str) -> HttpResponseBase:
    """Send bytes of a log from an offset (from the end if negative), or with ?download the whole file. The content type
    is plain text, so no browser executes it."""
    attempt = _attempt_with_log(request, run_id, name)
    if "download" in request.GET:
        return _download(request, attempt, name)
    limit = whole_parameter(request, "limit", LOG_PART, 1, 4 * LOG_PART)
    part = queries.log(attempt, name, whole_parameter(request, "offset", 0, -(2**40), 2**40), limit)
    response = HttpResponse(part.data, content_type=LOG_TYPE)
    response["X-Size"] = str(part.size)
    response["X-Offset"] = str(part.offset)
    return response


@require_safe
def search(request: HttpRequest, run_id: str, name: str) -> HttpResponse:
    """Find log lines that contain `?q=` or, with `?errors`, errors. `from` continues an earlier search."""
    attempt = _attempt_with_log(request, run_id, name)
    phrase = request.GET.get("q", "")[: log_search.MAX_QUERY_CHARS]
    find = log_search.of_errors if "errors" in request.GET else log_search.of_text(phrase) if phrase else None
    start = whole_parameter(request, "from", 0, 0, 2**40)
    hits = log_search.search(attempt, name, find, start) if find else log_search.LogHits(done=True)
    return JsonResponse(asdict(hits))


def _download(request: HttpRequest, attempt: Attempt, name: str) -> StreamingHttpResponse:
    """Stream the log as it is stored now, block by block, since it may be larger than memory."""
    size = queries.log_size(attempt, name)
    blocks = queries.log_blocks(attempt, name, size)
    # Under ASGI Django would first collect a plain iterator in memory.
    response = StreamingHttpResponse(_on_demand(blocks) if isinstance(request, ASGIRequest) else blocks)
    response["Content-Type"] = LOG_TYPE
    response["Content-Length"] = str(size)
    response["Content-Disposition"] = f'attachment; filename="{attempt.pk}-{name}.log"'
    return response


async def _on_demand(blocks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield each block once the browser has taken the previous one."""
    while block := await from_store(lambda: next(blocks, b"")):
        yield block


@require_safe
def events(request: HttpRequest, run_id: str) -> HttpResponse:
    """Render the timeline, or with `?before=` only its next page of lines."""
    run = queries.run_for(request, run_id)
    before = whole_parameter(request, "before", 0, 0, 2**62)
    lines, next_page = timeline.lines(run, before)
    context = {"run": run, "lines": lines, "next_page": next_page}
    if before:
        return render(request, "pages/run_page/_timeline_lines.html", context)
    latest = run.latest()
    context |= {"receipt": receipt_of(latest) if latest.status in FINAL else None, "phases": timeline.phases(run)}
    return render(request, "pages/run_page/_events.html", context)


def _attempt_with_log(request: HttpRequest, run_id: str, name: str) -> Attempt:
    run = queries.run_for(request, run_id)
    if name not in LOG_NAMES:
        raise Http404(f"There is no log named {name}.")
    return _attempt(run, request)


def _attempt(run: Run, request: HttpRequest) -> Attempt:
    number = whole_parameter(request, "attempt", 0, 0, 10**6)
    return next((a for a in run.attempts.all() if a.number == number), run.latest())
