"""The checkpoints tab: each checkpoint with its figures, and the resume from any that still exists."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from controlplane.platform.accounts import vault
from controlplane.platform.accounts.roles import operator_required, person
from runs.engine import checkpoints, deletions, disk, queries
from runs.engine.artifacts import copies
from runs.engine.artifacts.models import StoredCopy
from runs.engine.artifacts.saved_models import SavedModel
from runs.engine.checkpoints import Checkpoint
from runs.engine.models import Run
from runs.engine.scheduling import launching
from runs.engine.scheduling.limits import QueueFull
from runs.engine.spec import unreadable
from runs.engine.states import ACTIVE, FINAL
from runs.insight import quality
from runs.pages.run_page import limits
from workers.contract.run import best


@dataclass(frozen=True)
class CheckpointRow:
    checkpoint: Checkpoint
    figures: list[tuple[str, float | None]]
    """Each with its label."""
    best: bool
    resumable: bool
    recommended: bool = False
    """True if it is the one to use by the rule that ended the run early."""
    as_model: str = ""
    """The query of the New run page for a run with this checkpoint as its model; "" for an adapter, which is none."""
    host_problem: str = ""
    """Why its host can't use it now; "": it can."""
    leftover: StoredCopy | None = None
    """Its copy in the store that has yet to be removed."""
    tags: tuple[tuple[str, str], ...] = ()
    """(word, reason) of each tag beside its step."""


@dataclass(frozen=True)
class StoreView:
    address: str
    """"": there is no store."""
    stored: int
    of: int
    """Checkpoints that exist."""


@require_safe
def tab(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    saved = checkpoints.of_run(run)
    columns, rows, best_by = _table(run, saved)
    status = run.latest().status
    may_act = person(request).may_operate and not unreadable(run)
    context = {
        "run": run,
        "columns": list(columns.values()),
        "best_by": columns.get(best_by, "") if any(row.best for row in rows) else "",
        "over": best.OVER,
        "rows": rows,
        "most": checkpoints.MOST,
        "store": _store(saved) if may_act else None,
        "live": status in ACTIVE,
        "may_act": may_act,
        "may_resume": may_act and status in FINAL,
        "disk": disk.of_run(run),
        "may_delete": person(request).may_operate and status in FINAL,
    }
    return render(request, "pages/run_page/_checkpoints.html", context)


@require_POST
@operator_required
def resume(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Resume from the checkpoint that the form names, by default from the last one."""
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


def _table(run: Run, saved: list[Checkpoint]) -> tuple[dict[str, str], list[CheckpointRow], str]:
    """The labels of the figures that the run has, the rows, and the metric by which one is the best."""
    chosen = quality.best_metric(run)
    labels = quality.labels_of(run) if saved else {}
    best_by = next((name for name in (chosen, "eval_reward", "reward") if name in labels), "")
    figures = quality.figures_of(run, saved)
    left, problems = copies.leftovers(run), _host_problems(saved)
    scored = [(each, values.get(best_by)) for each, values in zip(saved, figures, strict=True) if each.usable]
    winner, recommended = best_of(best_by, scored), _recommended(run, saved)
    rows = [
        CheckpointRow(
            each,
            [(labels[name], value) for name, value in values.items()],
            best=each is winner,
            resumable=each.usable and checkpoints.trains_on(run, each.step),
            recommended=each is recommended,
            as_model=SavedModel(each).as_model,
            host_problem=problems.get(each.event.attempt_id, ""),
            leftover=left.get((each.event.attempt_id, each.event.data["path"])),
            tags=_tags(run, each, best_by if each is winner else "", each is recommended),
        )
        for each, values in zip(saved, figures, strict=True)
    ]
    return labels, rows, best_by


def _tags(run: Run, checkpoint: Checkpoint, best_by: str, recommended: bool) -> tuple[tuple[str, str], ...]:
    """`best_by`: the metric by which it is the best; "": it is not."""
    kept = f"The trainer keeps the newest {run.spec.get('grpo', {}).get('save_total_limit', '')}"
    removed = checkpoint.removed and not checkpoint.going
    tags = {
        ("best", f"Best of the existing checkpoints by {best_by}; ties go to the earlier one"): best_by,
        ("recommended", "Nearest to the best step by the rule that ended the run"): recommended,
        (
            "superseded",
            "A later attempt resumed from an earlier step, so this checkpoint is obsolete",
        ): checkpoint.superseded,
        ("being deleted", "The host was asked to delete it"): checkpoint.going,
        ("deleted", "A person deleted it"): removed and checkpoint.deletion,
        ("deleted", f"{kept}{' and the best' if quality.best_metric(run) else ''}"): removed
        and not checkpoint.deletion,
        (
            "unusable",
            "A host refused to resume from it: a file is missing or cut, or it doesn’t fit the run",
        ): checkpoint.unusable,
    }
    return tuple(tag for tag, applies in tags.items() if applies)


def _host_problems(saved: list[Checkpoint]) -> dict[str, str]:
    """Why the files of an attempt can't be reached on its host, in a word or three."""
    now = timezone.now()
    attempts = {each.event.attempt_id: each.event.attempt for each in saved}
    away = {pk: each for pk, each in attempts.items() if each.host is None or not each.host.is_fresh(now)}
    return {pk: "gone" if deletions.is_lost(each) else "out of reach" for pk, each in away.items()}


def _store(saved: list[Checkpoint]) -> StoreView:
    usable = [each for each in saved if each.usable]
    stored = sum(each.stored for each in usable)
    return StoreView(vault.artifact_store_address(), stored, len(usable))


def _recommended(run: Run, saved: list[Checkpoint]) -> Checkpoint | None:
    """The one nearest to the step that the rule recommends."""
    step = limits.recommended_step(run)
    usable = [each for each in saved if each.usable]
    return None if step is None else min(usable, key=lambda each: abs(each.step - step), default=None)


def best_of(metric: str, newest: list[tuple[Checkpoint, float | None]]) -> Checkpoint | None:
    """Choose the best checkpoint; ties go to the older one, as in the trainer. A single one is not called the best."""
    winner: tuple[Checkpoint, float] | None = None
    for checkpoint, figure in reversed(newest):
        if figure is not None and (winner is None or best.is_better(metric, figure, winner[1])):
            winner = checkpoint, figure
    return winner[0] if winner and len(newest) > 1 else None
