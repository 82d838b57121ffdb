"""The checkpoints tab: each checkpoint with its metrics, and resuming from any that still exists."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST, require_safe

from controlplane.platform.accounts import vault
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.templatetags.frame import EmptyState
from runs.engine import checkpoints, deletions, disk, queries
from runs.engine.artifacts import copies
from runs.engine.artifacts.models import StoredCopy
from runs.engine.artifacts.saved_models import SavedModel
from runs.engine.checkpoints import Checkpoint
from runs.engine.models import Run
from runs.engine.scheduling import launching
from runs.engine.scheduling.limits import QueueFull
from runs.engine.spec import why_unreadable
from runs.engine.states import ACTIVE, FINAL
from runs.insight import quality
from runs.pages.run_page import limits
from workers.contract.run import evaluation


@dataclass(frozen=True)
class StoreNote:
    tone: str
    word: str
    title: str = ""
    place_title: str = ""
    error: str = ""


@dataclass(frozen=True)
class CheckpointRow:
    checkpoint: Checkpoint
    figures: list[tuple[str, float | None]]
    best: bool
    resumable: bool
    recommended: bool = False
    """True if the rule that ended the run early recommended the checkpoint."""
    as_model: str = ""
    """Query string of the New run page with this checkpoint as model; see SavedModel.as_model."""
    host_problem: str = ""
    """The reason why the checkpoint's files are unreachable, or ""."""
    leftover: StoredCopy | None = None
    """A copy that still has to be removed from the store."""
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def css(self) -> str:
        return "void" if self.checkpoint.superseded or self.checkpoint.removed else ""

    @property
    def listed_on_host(self) -> bool:
        return not self.checkpoint.removed or self.leftover is not None

    @property
    def reach_problem(self) -> str:
        return self.host_problem if self.listed_on_host else ""

    @property
    def place_css(self) -> str:
        return "place row nowrap void" if self.checkpoint.removed and self.leftover else "place row nowrap"

    @property
    def store_note(self) -> StoreNote | None:
        event = self.checkpoint.storage
        if self.leftover:
            error = f"{self.leftover.problem} Retried automatically." if self.leftover.problem else ""
            return StoreNote("warn", "still in the store", "It will be removed", error=error)
        if self.checkpoint.stored:
            return StoreNote("good", "in the store", place_title="In the artifact store: any host can resume from it")
        if event is None:
            return None
        if event.kind == checkpoints.UPLOADING:
            if self.host_problem:
                return StoreNote("warn", "partly uploaded", "Its host became unreachable during the upload")
            return StoreNote("", "uploading", place_title="Being uploaded to the artifact store")
        if event.kind == checkpoints.NOT_STORED:
            return StoreNote("bad", "not stored", error=f"{event.data.get('problem', '')} Retried automatically.")
        was_removed = event.kind == checkpoints.UNSTORED and not self.checkpoint.removed
        return StoreNote("", "no longer in the store", "Its copy was removed") if was_removed else None


NONE_YET = EmptyState(
    "save", "No checkpoint yet", "The trainer saves at the configured interval, at its last step, and on save and stop."
)
NONE_SAVED = EmptyState("save", "No checkpoint was saved", "The run ended before its first save.")


@require_safe
def tab(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    saved = checkpoints.of_run(run)
    columns, rows, best_by = _table(run, saved)
    status = run.latest().status
    may_act = person(request).may_operate and not why_unreadable(run)
    decided_by = columns.get(best_by, "") if any(row.best for row in rows) else ""
    context = {
        "run": run,
        "columns": list(columns.values()),
        "rows": rows,
        "notes": list(_notes(saved, columns, decided_by, may_act)),
        "empty": NONE_YET if status in ACTIVE else NONE_SAVED,
        "may_act": may_act,
        "may_resume": may_act and status in FINAL,
        "disk": disk.of_run(run),
        "may_delete": person(request).may_operate and status in FINAL,
    }
    return render(request, "pages/run_page/_checkpoints.html", context)


@require_POST
@operator_required
def resume(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Resume the run from the checkpoint in the form, by default from the last one."""
    run = queries.run_for(request, run_id)
    event_id = request.POST.get("checkpoint")
    checkpoint = checkpoints.find(run, event_id) if event_id else None
    try:
        if event_id and (checkpoint is None or not checkpoint.usable):
            raise launching.NotResumable("This checkpoint no longer exists. Resume from another one.")
        launching.resume(run, person(request), checkpoint)
    except (launching.NotResumable, QueueFull) as error:
        messages.error(request, str(error))
    return redirect("run", run.pk)


def _notes(saved: list[Checkpoint], columns: dict[str, str], best_by: str, may_act: bool) -> Iterator[str | SafeString]:
    usable = [checkpoint for checkpoint in saved if checkpoint.usable]
    store = vault.artifact_store_address() if may_act and usable else ""
    if store:
        text = (
            "{} of {} are in the store <code>{}</code>. Any host can resume, evaluate, serve or merge them from there."
        )
        yield format_html(text, sum(checkpoint.stored for checkpoint in usable), len(usable), store)
    if columns:
        tie_rule = f"Best by {best_by}; ties go to the earlier checkpoint. " if best_by else ""
        yield (
            f"{tie_rule}Metrics are means over the {evaluation.FIGURE_STEPS} steps up to the checkpoint; a validation "
            "metric is from the newest evaluation."
        )
    if len(saved) == checkpoints.MAX_SHOWN:
        link = SafeString('<a href="?tab=events" data-tab-link="events">Events</a>')
        yield format_html("Only the newest {} are shown; {} lists all.", checkpoints.MAX_SHOWN, link)


def _table(run: Run, saved: list[Checkpoint]) -> tuple[dict[str, str], list[CheckpointRow], str]:
    """Return the metrics' labels, the rows, and the name of the metric that decides which checkpoint is best."""
    best_metric = quality.best_metric(run)
    labels = quality.labels_of(run) if saved else {}
    best_by = next((name for name in (best_metric, "eval_reward", "reward") if name in labels), "")
    figures = quality.figures_of(run, saved)
    leftovers, problems = copies.leftovers(run), _host_problems(saved)
    scored_checkpoints = [
        (checkpoint, values.get(best_by))
        for checkpoint, values in zip(saved, figures, strict=True)
        if checkpoint.usable
    ]
    winner, recommended = best_of(best_by, scored_checkpoints), _recommended(run, saved)
    rows = [
        CheckpointRow(
            checkpoint,
            [(labels[name], value) for name, value in values.items()],
            best=checkpoint is winner,
            resumable=checkpoint.usable and checkpoints.has_steps_after(run, checkpoint.step),
            recommended=checkpoint is recommended,
            as_model=SavedModel(checkpoint).as_model,
            host_problem=problems.get(checkpoint.event.attempt_id, ""),
            leftover=leftovers.get((checkpoint.event.attempt_id, checkpoint.event.data["path"])),
            tags=_tags(run, checkpoint, best_by if checkpoint is winner else "", checkpoint is recommended),
        )
        for checkpoint, values in zip(saved, figures, strict=True)
    ]
    return labels, rows, best_by


def _tags(run: Run, checkpoint: Checkpoint, best_by: str, recommended: bool) -> tuple[tuple[str, str], ...]:
    deleted = f"The trainer keeps the newest {run.spec.get('grpo', {}).get('save_total_limit', '')}"
    is_removed = checkpoint.removed and not checkpoint.is_being_deleted
    tags = {
        ("best", f"Best of the existing checkpoints by {best_by}; ties go to the earlier one"): best_by,
        ("recommended", "Nearest to the best step according to the rule that ended the run"): recommended,
        (
            "superseded",
            "A later attempt resumed from an earlier step, so this checkpoint is obsolete",
        ): checkpoint.superseded,
        ("being deleted", "The host was asked to delete it"): checkpoint.is_being_deleted,
        ("deleted", "A person deleted it"): is_removed and checkpoint.deletion,
        ("deleted", f"{deleted}{' and the best' if quality.best_metric(run) else ''}"): is_removed
        and not checkpoint.deletion,
        (
            "unusable",
            "A host refused to resume from it: a file is missing or truncated, or it doesn’t fit the run",
        ): checkpoint.unusable,
    }
    return tuple(tag for tag, applies in tags.items() if applies)


def _host_problems(saved: list[Checkpoint]) -> dict[str, str]:
    """Return, by attempt id, the reasons why attempts' files can't be reached."""
    now = timezone.now()
    attempts = {attempt.event.attempt_id: attempt.event.attempt for attempt in saved}
    away = {pk: attempt for pk, attempt in attempts.items() if attempt.host is None or not attempt.host.is_fresh(now)}
    return {pk: "gone" if deletions.is_lost(attempt) else "unreachable" for pk, attempt in away.items()}


def _recommended(run: Run, saved: list[Checkpoint]) -> Checkpoint | None:
    step = limits.recommended_step(run)
    usable = [checkpoint for checkpoint in saved if checkpoint.usable]
    return None if step is None else min(usable, key=lambda checkpoint: abs(checkpoint.step - step), default=None)


def best_of(metric: str, newest: list[tuple[Checkpoint, float | None]]) -> Checkpoint | None:
    """Choose the best checkpoint; ties go to the older one, as in the trainer. A single checkpoint is not called the
    best."""
    winner: tuple[Checkpoint, float] | None = None
    for checkpoint, figure in reversed(newest):
        if figure is not None and (winner is None or evaluation.is_better(metric, figure, winner[1])):
            winner = checkpoint, figure
    return winner[0] if winner and len(newest) > 1 else None
