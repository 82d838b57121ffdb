"""Results of runs: logs, metrics, completions, events, health findings, kill receipts, checkpoints."""

import codecs
import dataclasses
from functools import partial
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Field, Query

from runs.api import shapes
from runs.api.access import Problem, Router
from runs.api.shapes import Cursor, Limit, ListResponse, PageResponse, ResponseBody
from runs.engine import checkpoints, queries, timeline
from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent, SampleRow
from runs.insight.completions import funnel as funnels
from runs.insight.completions.filters import MAX_TEXT
from runs.insight.completions.groups import POLICY
from runs.insight.completions.groups import completions as stored
from runs.insight.completions.reading import CompletionReader, from_source, valid_groups
from runs.insight.completions.solving import Solving
from runs.insight.metrics import series as numbers
from runs.insight.metrics import waterfall as steps
from runs.insight.metrics.series import Window
from workers.contract.wire.names import LOG_NAMES

router = Router(tags=["results"])
LOG_PART = 256 * 1024
MAX_METRICS = 100
Number = Annotated[float, Field(allow_inf_nan=False)]
Attempts = Annotated[int, Query(0, ge=0, le=10**6, description="The attempt's number. 0 means the latest.")]


class LogText(ResponseBody):
    name: str
    """The log's name, such as `trainer`."""
    attempt: int
    """The attempt's number, counting from 1."""
    text: str
    """This part of the log. Bytes that are not valid UTF-8 are replaced."""
    offset: int
    """Position of the first byte of `text`."""
    next_offset: int
    """The `offset` of the next part. Repeat the request once the run has written more."""
    size: int
    """Number of bytes of the log that have arrived so far."""


class Logs(ResponseBody):
    attempt: int
    """The attempt's number, counting from 1."""
    bytes: dict[str, int]
    """Size in bytes of each existing log, by name."""


class Metrics(ResponseBody):
    items: list[dict[str, Any]]
    """The metrics, each with `name`, `points` (number of stored points) and `kind`: `train`, `system` (GPUs and host)
    or `vllm`."""


class MetricPoints(ResponseBody):
    last: int
    """The number of the last reported line that is included."""
    series: dict[str, dict[str, list[Any]]]
    """For each metric, columns of equal length: `value`, `step`, `t` (Unix seconds), `seq`, and `tokens` if `x` is
    `tokens`."""


class FunnelLoss(ResponseBody):
    reason: str
    """Why the prompts or completions are lost."""
    count: int | None
    """How many are lost. null if that isn't recorded."""
    groups: int | None
    """How many groups are lost as a whole. null if they are lost one by one."""


class FunnelStage(ResponseBody):
    name: str
    """The stage, as on the page."""
    count: int | None
    """Number of prompts or completions that reach the stage. null if that isn't recorded."""
    groups: int | None
    """Number of groups to which the completions belong. null for prompts."""
    losses: list[FunnelLoss]
    """What is lost between the previous stage and this one."""


class FunnelResponse(ResponseBody):
    prompts: list[FunnelStage]
    """From the rows of the files to the prompts with completions. Empty if a dataset of the run is gone."""
    completions: list[FunnelStage]
    """From generated completions to those trained on. Empty before the first step."""
    since_step: int
    """Step before which groups are no longer stored. 0 if all are counted."""
    notes: list[str]
    """Sentences about what is not recorded."""


class StepWaterfall(ResponseBody):
    step: int
    """The step, counting from 1."""
    began: float
    """When the step began, in Unix seconds."""
    seconds: float
    """Duration of the step in seconds."""
    median_of: int
    """Number of steps from which this step was chosen as the median. 0 if the step was requested."""
    lanes: list[dict[str, Any]]
    """The programs' busy times: `bars` and `gaps` in seconds from the step's start, and `idle` as a share (0 to 1)."""
    gpus: list[dict[str, Any]]
    """Utilization of each GPU in percent, if it was sampled during the step."""
    switches: list[dict[str, Any]]
    """Settings that affect the step time, each with the estimated time of a step if that setting is changed."""
    words: list[str]
    """Sentences about idle programs and about what would shorten the step."""
    steps: list[int]
    """The steps that can be requested."""


class RunHealth(ResponseBody):
    verdict: str
    """`well`, `warning`, `bad`, or `unknown` if no rule could be checked yet."""
    step: int
    """The last step that was assessed. 0 if none."""
    at: str | None
    """When the run was last assessed. null if it has not been."""
    findings: list[dict[str, Any]]
    """Broken rules and notes, each with `rule`, `level`, the values and what to do. Findings about gamed rewards have
    `examples`: the `group` and number (`completion`) of stored completions that show them."""
    checks: list[dict[str, Any]]
    """All rules with their results, including those that hold and those that could not be checked."""


@router.get("runs/{slug:run_id}/logs", response=Logs)
def logs(request: HttpRequest, run_id: str, attempt: Attempts = 0) -> Any:
    """List a run's logs."""
    row = _attempt(queries.run_for(request, run_id), attempt)
    return {"attempt": row.number, "bytes": queries.log_sizes(row)}


@router.get("runs/{slug:run_id}/logs/{slug:name}", response=LogText)
def log(
    request: HttpRequest,
    run_id: str,
    name: str,
    offset: Annotated[
        int,
        Query(-65536, ge=-(2**40), le=2**40, description="Position of the first byte. If negative, from the end."),
    ] = -65536,
    limit: Annotated[int, Query(LOG_PART, ge=1, le=4 * LOG_PART, description="Maximum number of bytes.")] = LOG_PART,
    attempt: Attempts = 0,
) -> Any:
    """Read a log of a run."""
    row = _attempt(queries.run_for(request, run_id), attempt)
    if name not in LOG_NAMES:
        raise Problem(404, f"There is no log {name[:40]}.", where="name", fix=f"Use one of: {', '.join(LOG_NAMES)}.")
    part = queries.log(row, name, offset, limit)
    # An incomplete character is left for the next part, unless there is nothing else.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(part.data)
    pending = len(decoder.getstate()[0]) if text else 0
    text = text if pending or not part.data else part.data.decode(errors="replace")
    end = part.offset + len(part.data) - pending
    part_of_log = {"text": text, "offset": part.offset, "next_offset": end, "size": part.size}
    return {"name": name, "attempt": row.number, **part_of_log}


@router.get("runs/{slug:run_id}/metrics", response=Metrics)
def metrics(request: HttpRequest, run_id: str) -> Any:
    """List a run's metrics."""
    return {"items": numbers.metrics(queries.run_for(request, run_id))}


@router.get("runs/{slug:run_id}/series", response=MetricPoints)
def series(
    request: HttpRequest,
    run_id: str,
    metrics: Annotated[
        str, Query("reward", max_length=5000, description="Names of metrics, separated by commas. * means all metrics.")
    ] = "reward",
    points: Annotated[
        int, Query(500, ge=2, le=5000, description="Maximum number of points per metric. Spikes are kept.")
    ] = 500,
    x: Annotated[Literal["step", "tokens", "time"], Query(description="The unit of the x axis.")] = "step",
    low: Annotated[Number | None, Query(description="Lower end of the x range. If empty, the first point.")] = None,
    high: Annotated[Number | None, Query(description="Upper end of the x range. If empty, the last point.")] = None,
) -> Any:
    """Read the points of metrics."""
    run = queries.run_for(request, run_id)
    names = numbers.reported_metrics(run) if metrics == "*" else [name for name in metrics.split(",") if name]
    if any("\0" in name for name in names) or (len(names) > MAX_METRICS and metrics != "*"):
        raise Problem(422, f"At most {MAX_METRICS} metrics can be named in one request.", where="metrics")
    return numbers.series(run, names, points, Window("" if x == "step" else x, low, high))


@router.get("runs/{slug:run_id}/waterfall", response=StepWaterfall)
def waterfall(
    request: HttpRequest,
    run_id: str,
    step: Annotated[
        int | None, Query(ge=1, le=2**31 - 1, description="The step. If empty, the median of the last steps.")
    ] = None,
) -> Any:
    """Read when each phase of a step began and ended.

    Phases are grouped by program: vLLM servers, the trainer, rewards. They are kept only for the newest steps; if steps
    are short, for one step every two seconds."""
    view = steps.of_run(queries.run_for(request, run_id), step)
    if view is None:
        reason = "No step is recorded yet." if step is None else f"Step {step} is not recorded."
        raise Problem(404, reason, where="step", fix="Omit `step` to get one of the last steps.")
    return view.as_json()


@router.get("runs/{slug:run_id}/completions", response=PageResponse)
def completions(
    request: HttpRequest,
    run_id: str,
    step: Annotated[int | None, Query(ge=0, le=2**31, description="Only this step. If empty, all steps.")] = None,
    mode: Annotated[
        Literal["", "train", "eval", "replaced"], Query(description="Only groups of this kind. If empty, all kinds.")
    ] = "",
    source: Annotated[
        str, Query(max_length=MAX_TEXT, description="Only prompts with this source or tag. If empty, all prompts.")
    ] = "",
    cursor: Cursor = "",
    limit: Annotated[int, Query(10, ge=1, le=50, description="Maximum number of groups per page.")] = 10,
) -> Any:
    """Read a run's prompt groups, newest first, with their completions, rewards and advantages.

    Old groups may have lost their texts but keep their numbers. For a group that was generated one step ahead, `policy`
    is the step whose weights generated it."""
    run = queries.run_for(request, run_id)
    rows = from_source(valid_groups(run) if step is None else valid_groups(run).filter(step=step), source)
    shape = partial(_group, solving=CompletionReader(run).solving)
    return shapes.page(rows.filter(mode=mode) if mode else rows, shape, cursor, limit)


@router.get("runs/{slug:run_id}/funnel", response=FunnelResponse)
def funnel(request: HttpRequest, run_id: str) -> Any:
    """Count the prompts and completions of a run at each stage from its files to the loss.

    Each stage says what was lost before it, and why."""
    return dataclasses.asdict(funnels.of(queries.run_for(request, run_id)))


@router.get("runs/{slug:run_id}/events", response=PageResponse)
def events(request: HttpRequest, run_id: str, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List a run's events."""
    rows = RunEvent.objects.filter(run=queries.run_for(request, run_id)).select_related("attempt")
    return shapes.page(rows, timeline.event_view, cursor, limit)


@router.get("runs/{slug:run_id}/health", response=RunHealth)
def health(request: HttpRequest, run_id: str) -> Any:
    """Read a run's health."""
    not_assessed = {"verdict": "unknown", "step": 0, "at": None, "findings": [], "checks": []}
    return not_assessed | queries.run_for(request, run_id).health


@router.get("runs/{slug:run_id}/receipts", response=ListResponse)
def receipts(request: HttpRequest, run_id: str) -> Any:
    """List how a run's attempts ended, with their kill receipts and, for failed ones, a diagnosis.

    `diagnosis` has the likely `causes`, each with its fix and evidence, and the `first_errors` of the logs. A kill
    receipt states the time until every process had ended, and each GPU's memory before and after."""
    attempts = sorted(queries.run_for(request, run_id).attempts.all(), key=lambda attempt: -attempt.number)
    return {"items": [shapes.receipt(attempt) for attempt in attempts]}


@router.get("runs/{slug:run_id}/checkpoints", response=ListResponse)
def checkpoints_of(request: HttpRequest, run_id: str) -> Any:
    """List a run's checkpoints."""
    return {"items": [shapes.checkpoint(row) for row in checkpoints.of_run(queries.run_for(request, run_id))]}


def _group(row: SampleRow, solving: Solving) -> dict[str, Any]:
    return {
        "id": row.pk,
        **shapes.columns(row, "step", "row", "mode"),
        "prompt": row.data.get("prompt"),
        "answer": row.data.get("answer"),
        "sources": list(filter(None, row.sources.split("\n"))),
        "solved": row.solved,
        "policy": row.data.get(POLICY),
        "completions": [
            {
                **shapes.columns(completion, "text", "turns", "tokens", "end", "reward", "rewards", "advantage"),
                "solved": solving.is_solved(completion.rewards),
            }
            for completion in stored(row.data)
        ],
    }


def _attempt(run: Run, number: int) -> Attempt:
    if not number:
        return run.latest()
    for attempt in run.attempts.all():
        if attempt.number == number:
            return attempt
    raise Problem(404, f"{run.name} has no attempt {number}.", where="attempt")
