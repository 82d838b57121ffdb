"""The replay page: a run's stored completions scored with the config in the editor, before it costs GPU-hours."""

from collections.abc import Iterator
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.html import format_html, format_html_join
from django.views.decorators.http import require_http_methods

from controlplane.platform.accounts.roles import operator_required
from controlplane.platform.templatetags.figures import sig
from runs.engine.models import Run
from runs.engine.queries import run_for
from runs.engine.sentences import counted
from runs.engine.states import ACTIVE
from runs.insight.scoring.composition import posted_state
from runs.pages.playground import replay_source
from runs.pages.playground.completions_source import number
from runs.pages.playground.replay import ReplayNote, RewardReplay
from runs.pages.playground.replay_source import COUNTS, SELECTIONS, SPREAD_OVER_RUN, PickedGroups, ReplayableGroups
from runs.pages.playground.rescoring import rescore

GONE = "This run no longer exists. Choose another run."
COMPONENTS = "Components are normalized separately, and advantages over those groups of a step that are replayed."
BY_GROUP = "Advantages are scaled by each group's standard deviation."
UNSCALED_NOTE = "Advantages are not scaled, as in the run."
SCALINGS = {
    "batch": "Advantages are scaled by the standard deviation over those groups of a step that are replayed.",
    "none": UNSCALED_NOTE,
    "False": UNSCALED_NOTE,
}


@operator_required
@require_http_methods(["GET", "POST"])
def replay(request: HttpRequest) -> HttpResponse:
    """Show the chosen run; POST scores its groups."""
    fields = request.POST if request.method == "POST" else request.GET
    run_id = fields.get("replay", "")
    try:
        run = run_for(request, run_id) if run_id else None
    except Http404:
        run = None
    if request.method == "GET":
        context = _run_context(run) if run else {"problem": GONE if run_id else ""}
        return render(request, "pages/playground/_replay_run.html", context)
    context = _score_groups(request, run) if run else {"problem": GONE if run_id else "Choose a run first."}
    return render(request, "pages/playground/_replay.html", context)


def _run_context(run: Run) -> dict[str, Any]:
    groups = replay_source.replayable_groups(run)
    return {
        "run": run,
        "replayable": groups,
        "extent": replayable_text(groups, live=run.latest().status in ACTIVE),
        "selections": SELECTIONS,
        "spread": SPREAD_OVER_RUN,
        "counts": COUNTS,
        "usual_count": COUNTS[1],
    }


def _score_groups(request: HttpRequest, run: Run) -> dict[str, Any]:
    config, fields = posted_state(request), request.POST
    count, may_call_servers = fields.get("groups", ""), bool(fields.get("ask"))
    rescoring = rescore(
        run,
        config.specs,
        aggregation=config.aggregation,
        selection=fields.get("which", ""),
        step=number(fields.get("step"), digits=9),
        count=int(count) if count in map(str, COUNTS) else COUNTS[1],
        ask=may_call_servers,
    )
    context: dict[str, Any] = {
        "run": run,
        "problems": config.problems,
        "asks": may_call_servers,
        "picked": rescoring.picked,
    }
    if rescoring.replay is None or rescoring.picked is None:
        return context | {"problem": rescoring.problem}
    parts = list(zip(rescoring.replay.parts, config.positions, strict=True))
    summary = _summary(rescoring.replay, rescoring.picked, live=run.latest().status in ACTIVE)
    return context | {"replay": rescoring.replay, "parts": parts, "summary": summary}


def _summary(replay: RewardReplay, picked: PickedGroups, *, live: bool) -> dict[str, Any]:
    verdict, shown_count = ReplayNote("good", "No group's order changes."), len(replay.shown)
    if replay.reordered:
        groups = _counted(len(replay.groups), "group")
        verdict = ReplayNote("warn", f"The order changes in {sig(replay.reordered, 9)} of {groups}.")
    clauses = format_html_join("", "; {}", ((clause,) for clause in _left_out(replay, picked, live=live)))
    first_step, last_step = replay.steps
    steps = f"step {last_step}" if first_step == last_step else f"steps {first_step} to {last_step}"
    few_groups = f"The {shown_count} groups that change most" if shown_count < len(replay.groups) else ""
    return {
        "verdict": verdict,
        "scored": format_html("{} completions of {}{}.", sig(replay.completions, 9), steps, clauses),
        "scaling": COMPONENTS if replay.aggregation == "normalize_then_sum" else SCALINGS.get(replay.scale, BY_GROUP),
        "groups_title": few_groups or "Groups, the most changed first",
    }


def _left_out(replay: RewardReplay, picked: PickedGroups, *, live: bool) -> Iterator[str]:
    groups = len(replay.groups)
    if groups < replay.requested:
        text = f"scoring timed out after {groups} of {replay.requested} groups"
        yield format_html('<strong class="warn">{}</strong>', text)
    if picked.cut:
        yield "the other groups of these steps are omitted because they are too many for one page"
    if picked.gone:
        yield f"{_counted(picked.gone, 'group')} of these steps had no stored completions"
    if live:
        yield "the run is still active"


def replayable_text(groups: ReplayableGroups, *, live: bool) -> str:
    if not groups.groups and groups.gone:
        return "This run's completions are no longer stored, only their scores, so nothing can be scored again."
    if not groups.groups:
        return f"This run has no completions {'yet' if live else 'stored'}."
    steps = f"step {groups.first}" if groups.first == groups.last else f"steps {groups.first} to {groups.last}"
    gone_note = f"; for {sig(groups.gone, 9)} more, only the scores are stored" if groups.gone else ""
    continues = " The run is still active: new completions appear in the next replay." if live else ""
    return f"{_counted(groups.groups, 'group')} from {steps} with stored completions{gone_note}.{continues}"


def _counted(number: int, noun: str) -> str:
    return counted(number, noun).replace(str(number), sig(number, 9), 1)
