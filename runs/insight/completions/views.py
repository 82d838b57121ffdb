"""Views of a run's completions: a step, a search through all steps, one group, one prompt over time, difficulty.

Each view renders a part of the run page's tab. Its links are URLs of the run page (`?tab=completions&s.step=4`), which
the tab's script follows in place.
"""

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_safe

from controlplane.platform.http.keyset import whole_parameter
from runs.engine import queries
from runs.engine.models import Run
from runs.engine.records import SampleRow, SampleStore
from runs.engine.states import ACTIVE
from runs.insight.completions import (
    difficulty,
    episode_changes,
    episodes,
    filters,
    funnel,
    group_retention,
    text_retention,
)
from runs.insight.completions.difficulty import CLASSES, ORDERS, PERIODS, PromptChoice
from runs.insight.completions.episodes import StoredEpisode
from runs.insight.completions.filters import ENDS, EPISODE_SORTS, PREFIX, SORTS, CompletionFilter
from runs.insight.completions.reading import (
    CompletionReader,
    CompletionRow,
    CompletionTable,
    GroupView,
    search,
    steps,
    table,
    valid_groups,
)
from runs.insight.completions.solving import limited, names
from runs.insight.completions.solving import of as solving_of
from runs.insight.completions.transcripts import turns
from runs.insight.metrics.episode_charts import tool_names
from workers.contract.run.prompts import sources

VISITS_PER_PAGE = 8


@require_safe
@gzip_page
def completions(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    query = filters.read(request.GET, names(run.spec))
    position = steps(run, query.step)
    result = CompletionTable([])
    if position.step is not None:
        result = search(run, query) if query.every else table(run, position.step, query)
    shared_context = _common_context(run, result.groups)
    context = {
        **shared_context,
        "sorts": SORTS | EPISODE_SORTS if shared_context["episodes"] else SORTS,
        "query": query,
        "at": position,
        "table": result,
        "ends": ENDS,
        "errors": episodes.ERRORS,
        "sources": sorted({*sources(run.last_metrics).values(), query.source} - {""}),
        "tools": sorted({*tool_names(run.last_metrics), query.tool} - {""}),
        "store": SampleStore.objects.filter(pk=run.pk).first(),
        "limit": text_retention.LIMIT,
        "most": group_retention.LIMIT,
        "links": _links(query, position, result),
    }
    return render(request, "insight/completions/_completions.html", context)


@require_safe
@gzip_page
def group(request: HttpRequest, run_id: str, sample_id: int) -> HttpResponse:
    """Show one prompt group with all its completions, for reading and comparing."""
    run = queries.run_for(request, run_id)
    row = get_object_or_404(SampleRow, pk=sample_id, run=run)
    reader = CompletionReader(run)
    view = reader.group(row)
    entries = reader.entries(row, CompletionFilter())
    completion_views = [
        (entry, turns(entry.completion.text, entry.completion.turns, "assistant"), entry.episode) for entry in entries
    ]
    of_step = valid_groups(run).filter(step=row.step).order_by("pk")
    context = {
        **_common_context(run, [view]),
        "group": view,
        "superseded": row.superseded,
        "prompt": turns(view.prompt, row.data.get("turns"), "user"),
        "entries": completion_views,
        "ends_of": _best_and_worst(entries),
        "widest": _largest_advantage(entries, [episode for *_, episode in completion_views if episode]),
        "earlier": of_step.filter(pk__lt=row.pk).values_list("pk", flat=True).last(),
        "later": of_step.filter(pk__gt=row.pk).values_list("pk", flat=True).first(),
        "rewards_page": "" if row.superseded else _rewards_page(run, row),
    }
    return render(request, "insight/completions/_group.html", context)


@require_safe
@gzip_page
def funnel_page(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    return render(request, "insight/completions/_funnel.html", {"run": run, "funnel": funnel.of(run)})


@require_safe
@gzip_page
def prompts(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    choice = _choice(request)
    counts = difficulty.counts(run, choice.period)
    order = request.GET.get("sort", "")
    order = order if order in ORDERS else ""
    total = choice.of(run).count()
    pages = max(1, -(-total // difficulty.PROMPTS_PER_PAGE))
    number = whole_parameter(request, "page", 1, 1, pages)
    context = {
        **_common_context(run, []),
        "counts": counts,
        "parts": [
            {"label": label, "value": counts[name], "colour": colour}
            for (name, label), colour in zip(CLASSES.items(), ("c6", "c7", "c3"), strict=True)
        ],
        "choice": choice,
        "classes": CLASSES,
        "periods": PERIODS,
        "period": PERIODS[choice.period].lower(),
        "orders": {key: label for key, (_, label) in ORDERS.items()},
        "order": order,
        "found": total,
        "prompts": difficulty.page(run, choice, order, number),
        "number": number,
        "pages": pages,
        "here": _page_link(request, view="prompts"),
    }
    return render(request, "insight/completions/_prompts.html", context)


@require_safe
@gzip_page
def prompts_map(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    return JsonResponse(difficulty.cells(run, _choice(request).period), json_dumps_params={"separators": (",", ":")})


@require_safe
@gzip_page
def prompts_export(request: HttpRequest, run_id: str) -> HttpResponse:
    """Download the row numbers of selected prompts, for filtering the dataset, as one JSON document or as JSON Lines
    with each row's statistics."""
    run = queries.run_for(request, run_id)
    choice = _choice(request)
    rows = difficulty.rows_to_export(run, choice)
    if request.GET.get("as") == "jsonl":
        body = "".join(json.dumps(row) + "\n" for row in rows)
        kind, extension = "application/x-ndjson", "jsonl"
    else:
        head = {
            "run": run.pk,
            "dataset": str(run.dataset_version),
            "sha256": run.dataset_version.sha256,
            "solved": solving_of(run.spec).sentence(),
            "classes": choice.classes,
            "by": PERIODS[choice.period].lower(),
            "visited_at_least": choice.visits,
        }
        body = json.dumps({**head, "rows": [row["row"] for row in rows]})
        kind, extension = "application/json", "json"
    response = HttpResponse(body, content_type=kind)
    name = f"{run.pk}-prompts-{'-'.join(choice.classes)}.{extension}"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@require_safe
@gzip_page
def prompt(request: HttpRequest, run_id: str, row: int) -> HttpResponse:
    run = queries.run_for(request, run_id)
    progress = difficulty.prompts(run).filter(row=row).first() if row < 2**31 else None
    if progress is None:
        raise Http404(f"The run has no completions for row {row} yet.")
    visits = difficulty.visits(run, row)
    ascending = request.GET.get("sort") == "oldest"
    stored_visits = visits.count()
    pages = max(1, -(-stored_visits // VISITS_PER_PAGE))
    number = whole_parameter(request, "page", 1, 1, pages)
    page_visits = (visits if ascending else visits.reverse())[(number - 1) * VISITS_PER_PAGE : number * VISITS_PER_PAGE]
    reader, with_texts = CompletionReader(run), difficulty.whole_prompt(run, row)
    groups = []
    for visit in page_visits:
        view = reader.group(visit)
        view.entries.extend(reader.entries(visit, CompletionFilter()))
        groups.append(view)
    text, reference_answer = with_texts.get("prompt"), with_texts.get("answer")
    dots = difficulty.dots(run, row)
    context = {
        **_common_context(run, groups),
        "progress": progress,
        "gone": progress.visits - stored_visits,
        "prompt": turns(text if isinstance(text, str) else "", with_texts.get("turns"), "user"),
        "answer": "" if reference_answer is None else str(reference_answer),
        "change": episode_changes.change(visits, request.GET.get("before", ""), request.GET.get("after", "")),
        "dots": dots,
        "lowest": min((dot.low for dot in dots), default=None),
        "highest": max((dot.high for dot in dots), default=None),
        "groups": groups,
        "oldest": ascending,
        "number": number,
        "pages": pages,
        "here": _page_link(request, prompt=str(row)),
    }
    return render(request, "insight/completions/_prompt.html", context)


def _common_context(run: Run, groups: Iterable[GroupView]) -> dict[str, Any]:
    entries, rewards = [entry for view in groups for entry in view.entries], names(run.spec)
    in_turns = bool(run.spec.get("episodes")) or any((entry.completion.turn_count or 0) > 1 for entry in entries)
    return {
        "run": run,
        "live": run.latest().status in ACTIVE,
        "rewards": rewards,
        "episodes": in_turns,
        "columns": len(rewards) + 5 + in_turns,
        "solving": solving_of(run.spec),
        "limited": [
            (name, rows, sum(dict(entry.scores).get(name) is not None for entry in entries), len(entries))
            for name, rows in limited(run.spec).items()
        ],
        "widest": _largest_advantage(entries),
    }


def _rewards_page(run: Run, row: SampleRow) -> str:
    version, page = run.reward_version, reverse("reward_config_new")
    if version and not version.config.deleted_at:
        page = reverse("reward_config", args=[version.config_id])
    return f"{page}?{urlencode({'from': 'run', 'run': run.pk, 'group': row.pk, 'replay': run.pk})}"


def _largest_advantage(entries: Iterable[CompletionRow], in_turns: Iterable[StoredEpisode] = ()) -> float:
    """Return the largest absolute advantage of the completions and turns, or 1 if there is none."""
    of_turns = [turn.advantage or 0.0 for episode in in_turns for turn in episode.turns]
    return max(map(abs, (*of_turns, *(entry.completion.advantage or 0.0 for entry in entries))), default=0.0) or 1.0


def _best_and_worst(entries: list[Any]) -> tuple[int, int]:
    """Return the numbers of the best and the worst completion, which the page compares by default."""
    scored_entries = sorted((e for e in entries if e.completion.reward is not None), key=lambda e: e.completion.reward)
    if len(scored_entries) < 2:
        return 1, min(2, len(entries))
    return scored_entries[-1].completion.number, scored_entries[0].completion.number


def _choice(request: HttpRequest) -> PromptChoice:
    classes = [name for name in request.GET.get("class", "").split(",") if name in CLASSES]
    period = request.GET.get("by", "")
    return PromptChoice(
        tuple(classes) or tuple(CLASSES),
        whole_parameter(request, "visits", 1, 1, 10**6),
        period if period in PERIODS else "",
    )


def _page_link(request: HttpRequest, **part: str) -> str:
    parameters = {**part, **{name: value for name, value in request.GET.items() if name != "page" and value}}
    return "?" + urlencode({"tab": "completions", **{PREFIX + name: value for name, value in parameters.items()}})


def _links(query: CompletionFilter, steps: Any, result: CompletionTable) -> dict[str, str]:
    """Return the links of the buttons, without those that have no target."""
    unfiltered_query = CompletionFilter(step=query.step)
    links = {
        "newest": query.link(step=None, every=False),
        "every": query.link(every=True, sort=""),
        "one": query.link(every=False),
        "clear": unfiltered_query.link(every=query.every),
    }
    if steps.earlier is not None:
        links["earlier"] = query.link(step=steps.earlier)
    if steps.later is not None:
        # The URL has no number for the newest step, so that the page follows new steps.
        links["later"] = query.link(step=None if steps.later == steps.newest else steps.later)
    if query.page > 1:
        links["previous"] = query.link(page=query.page - 1)
    if query.page < result.pages:
        links["next"] = query.link(page=query.page + 1)
    if result.next_before:
        links["further"] = query.link(before=result.next_before)
    return links
