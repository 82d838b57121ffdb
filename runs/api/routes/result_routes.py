"""What runs produce: logs, metrics, completions, events, health findings, receipts, checkpoints."""

from __future__ import annotations

import codecs
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Field, Query

from runs.api import paging, shapes
from runs.api.access import Problem, Router
from runs.api.shapes import Cursor, Limit, ListResponse, PageResponse, ResponseBody
from runs.engine import checkpoints, queries, timeline
from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent, SampleRow
from runs.insight.completions.groups import POLICY
from runs.insight.completions.groups import completions as stored
from runs.insight.completions.reading import CompletionReader, valid
from runs.insight.completions.solving import Solving
from runs.insight.metrics import series as numbers
from runs.insight.metrics import waterfall as steps
from runs.insight.metrics.series import Window
from workers.contract.wire.names import LOG_NAMES

router = Router(tags=["results"])
LOG_PART = 256 * 1024
MOST_METRICS = 100
Number = Annotated[float, Field(allow_inf_nan=False)]
Attempts = Annotated[int, Query(0, ge=0, le=10**6, description="The attempt's number; 0: the latest.")]


class LogText(ResponseBody):
    name: str
    """Which of the attempt's logs it is, such as `trainer`."""
    attempt: int
    """The attempt's number, from 1 on."""
    text: str
    """This part of the log. Bytes that are no UTF-8 are replaced."""
    offset: int
    """Of the first byte of `text`."""
    next_offset: int
    """Where to go on; ask again when the run has written more."""
    size: int
    """Bytes of the log that have arrived."""


class Logs(ResponseBody):
    attempt: int
    """The attempt's number, from 1 on."""
    bytes: dict[str, int]
    """Size of each log that has begun, by its name."""


class Metrics(ResponseBody):
    items: list[dict[str, Any]]
    """`name`, `points` (how many are stored) and `kind`: `train`, `system` (GPUs and host) or `vllm`."""


class MetricPoints(ResponseBody):
    last: int
    """The number of the last reported line that is in it."""
    series: dict[str, dict[str, list[Any]]]
    """By metric, columns of equal length: `value`, `step`, `t` (Unix seconds), `seq`, and `tokens` if they are x."""


class StepWaterfall(ResponseBody):
    step: int
    """The step that is shown, from 1 on."""
    began: float
    """Unix seconds."""
    seconds: float
    """How long the step took."""
    median_of: int
    """It is the median of so many steps; 0: it was asked for."""
    lanes: list[dict[str, Any]]
    """Who worked when: `bars` and `gaps` in seconds from the step's start, `idle` as a share of the step (0 to 1)."""
    gpus: list[dict[str, Any]]
    """Use in percent, where it was sampled within the step."""
    switches: list[dict[str, Any]]
    """What is on, and what the step would take the other way, estimated."""
    words: list[str]
    """Who was idle and what would make the step shorter, in sentences."""
    steps: list[int]
    """Those that can be asked for."""


class RunHealth(ResponseBody):
    verdict: str
    """`well`, `warning`, `bad`, or `unknown`: nothing could be judged yet."""
    step: int
    """The step up to which it was judged. 0: none."""
    at: str | None
    """When it was judged. null: not yet."""
    findings: list[dict[str, Any]]
    """The rules that are broken, and notes: with `rule`, `level`, the values and what to do."""
    checks: list[dict[str, Any]]
    """Every rule with what it found, also those that hold or could not be judged."""


@router.get("runs/{slug:run_id}/logs", response=Logs)
def logs(request: HttpRequest, run_id: str, attempt: Attempts = 0) -> Any:
    """List a run's logs."""
    one = _attempt(queries.run_for(request, run_id), attempt)
    return {"attempt": one.number, "bytes": queries.log_sizes(one)}


@router.get("runs/{slug:run_id}/logs/{slug:name}", response=LogText)
def log(
    request: HttpRequest,
    run_id: str,
    name: str,
    offset: Annotated[
        int, Query(-65536, ge=-(2**40), le=2**40, description="The first byte; negative: from the end.")
    ] = -65536,
    limit: Annotated[int, Query(LOG_PART, ge=1, le=4 * LOG_PART, description="At most so many bytes.")] = LOG_PART,
    attempt: Attempts = 0,
) -> Any:
    """Read a log of a run."""
    one = _attempt(queries.run_for(request, run_id), attempt)
    if name not in LOG_NAMES:
        raise Problem(404, f"There is no log {name[:40]}.", where="name", fix=f"Use one of: {', '.join(LOG_NAMES)}.")
    part = queries.log(one, name, offset, limit)
    # A character that isn't complete yet is left for the next part, unless it is all there is.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(part.data)
    pending = len(decoder.getstate()[0]) if text else 0
    text = text if pending or not part.data else part.data.decode(errors="replace")
    end = part.offset + len(part.data) - pending
    return {
        "name": name,
        "attempt": one.number,
        "text": text,
        "offset": part.offset,
        "next_offset": end,
        "size": part.size,
    }


@router.get("runs/{slug:run_id}/metrics", response=Metrics)
def metrics(request: HttpRequest, run_id: str) -> Any:
    """List a run's metrics."""
    return {"items": numbers.metrics(queries.run_for(request, run_id))}


@router.get("runs/{slug:run_id}/series", response=MetricPoints)
def series(
    request: HttpRequest,
    run_id: str,
    metrics: Annotated[
        str, Query("reward", max_length=5000, description="Their names, with commas between; *: all.")
    ] = "reward",
    points: Annotated[
        int, Query(500, ge=2, le=5000, description="At most so many of each metric; spikes are kept.")
    ] = 500,
    x: Annotated[Literal["step", "tokens", "time"], Query(description="What the points are placed by.")] = "step",
    low: Annotated[Number | None, Query(description="From this x on; empty: from the first point.")] = None,
    high: Annotated[Number | None, Query(description="Up to this x; empty: to the last point.")] = None,
) -> Any:
    """Read points of metrics."""
    run = queries.run_for(request, run_id)
    names = numbers.known(run) if metrics == "*" else [name for name in metrics.split(",") if name]
    if any("\0" in name for name in names) or (len(names) > MOST_METRICS and metrics != "*"):
        raise Problem(422, f"Ask for at most {MOST_METRICS} metrics by their names.", where="metrics")
    return numbers.series(run, names, points, Window("" if x == "step" else x, low, high))


@router.get("runs/{slug:run_id}/waterfall", response=StepWaterfall)
def waterfall(
    request: HttpRequest,
    run_id: str,
    step: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="Empty: the median of the last steps.")] = None,
) -> Any:
    """Read when each phase of a step began and ended.

    By lanes: vLLM servers, the trainer, rewards. Of the newest steps only; of short steps one in two seconds."""
    view = steps.of_run(queries.run_for(request, run_id), step)
    if view is None:
        which = "No step is recorded yet." if step is None else f"Step {step} is not recorded."
        raise Problem(404, which, where="step", fix="Leave it out for one of the last steps.")
    return view.as_json()


@router.get("runs/{slug:run_id}/completions", response=PageResponse)
def completions(
    request: HttpRequest,
    run_id: str,
    step: Annotated[int | None, Query(ge=0, le=2**31, description="Only of this step; empty: of all.")] = None,
    mode: Annotated[
        Literal["", "train", "eval", "replaced"], Query(description="Only groups of this kind; empty: all.")
    ] = "",
    cursor: Cursor = "",
    limit: Annotated[int, Query(10, ge=1, le=50, description="Groups of a page.")] = 10,
) -> Any:
    """Read a run's completions.

    Prompt groups, the newest first, each with its completions, rewards and advantages. Texts of old ones may be
    gone; their figures stay. `policy`: the step whose weights wrote a group that was generated one step ahead."""
    run = queries.run_for(request, run_id)
    rows = valid(run) if step is None else valid(run).filter(step=step)
    found, after = paging.page(rows.filter(mode=mode) if mode else rows, cursor, limit)
    reader = CompletionReader(run)
    return {"items": [_group(row, reader.solving) for row in found], "next_cursor": after}


@router.get("runs/{slug:run_id}/events", response=PageResponse)
def events(request: HttpRequest, run_id: str, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List a run's events."""
    rows = RunEvent.objects.filter(run=queries.run_for(request, run_id)).select_related("attempt")
    found, after = paging.page(rows, cursor, limit)
    return {"items": [timeline.event_view(each) for each in found], "next_cursor": after}


@router.get("runs/{slug:run_id}/health", response=RunHealth)
def health(request: HttpRequest, run_id: str) -> Any:
    """Read a run's health."""
    stored_health = queries.run_for(request, run_id).health
    return {
        "verdict": stored_health.get("verdict", "unknown"),
        "step": stored_health.get("step") or 0,
        "at": stored_health.get("at"),
        "findings": stored_health.get("findings") or [],
        "checks": stored_health.get("checks") or [],
    }


@router.get("runs/{slug:run_id}/receipts", response=ListResponse)
def receipts(request: HttpRequest, run_id: str) -> Any:
    """List how a run's attempts ended.

    With the kill receipt: how long until every process was gone, and each GPU's memory before and after."""
    attempts = sorted(queries.run_for(request, run_id).attempts.all(), key=lambda each: -each.number)
    return {"items": [shapes.receipt(each) for each in attempts]}


@router.get("runs/{slug:run_id}/checkpoints", response=ListResponse)
def checkpoints_of(request: HttpRequest, run_id: str) -> Any:
    """List a run's checkpoints."""
    return {"items": [shapes.checkpoint(each) for each in checkpoints.of_run(queries.run_for(request, run_id))]}


def _group(row: SampleRow, solving: Solving) -> dict[str, Any]:
    return {
        "id": row.pk,
        "step": row.step,
        "row": row.row,
        "mode": row.mode,
        "prompt": row.data.get("prompt"),
        "answer": row.data.get("answer"),
        "solved": row.solved,
        "policy": row.data.get(POLICY),
        "completions": [
            {
                "text": one.text,
                "turns": one.turns,
                "tokens": one.tokens,
                "end": one.end,
                "reward": one.reward,
                "rewards": one.rewards,
                "advantage": one.advantage,
                "solved": solving.solved(one.rewards),
            }
            for one in stored(row.data)
        ],
    }


def _attempt(run: Run, number: int) -> Attempt:
    if not number:
        return run.latest()
    found = next((each for each in run.attempts.all() if each.number == number), None)
    if found is None:
        raise Problem(404, f"{run.name} has no attempt {number}.", where="attempt")
    return found
