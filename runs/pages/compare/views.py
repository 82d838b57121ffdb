"""The comparison page and the data it loads."""

from dataclasses import asdict
from typing import Any

import msgspec
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_safe

from controlplane.platform.http.keyset import split_list, whole_parameter
from runs.engine import queries
from runs.engine.names import Parts, distinguish, own_words
from runs.engine.sentences import counted
from runs.insight.comparing import comparison
from runs.insight.comparing.comparison import ChosenRuns, ComparedMetric
from runs.insight.comparing.curves import AXES, better_direction, curves, final_values
from runs.insight.metrics import step_time, waterfall
from runs.pages.compare import prompts as compare_prompts
from workers.contract.run.jobs import KINDS

MAX_CURVES = 50
"""Maximum number of runs in one response with curves; the page requests fewer."""
OFFERED_RUNS = 100
MAX_WATERFALLS = 6
NOTHING_DIFFERS = "Nothing: these runs were launched with the same settings, including the seed."
NO_SHARED_PROMPT = "No prompt was visited by two of these runs, or their completions are no longer stored."
NO_PROMPT = "No completions are stored for this run yet."


@require_safe
def compare(request: HttpRequest) -> HttpResponse:
    if request.GET.get("add", "").strip():
        return redirect(f"{reverse('compare_runs')}?{_with_added(request)}")
    chosen_runs = comparison.chosen_runs(request)
    metrics = comparison.metrics(chosen_runs.runs)
    selected = comparison.shown_metrics(request, metrics)
    differing_settings, equal_count = comparison.differences(chosen_runs.runs)
    other_runs = queries.runs_for(request).filter(archived_at=None)
    other_runs = other_runs.exclude(pk__in=chosen_runs.runs).exclude(kind__in=("trial", *KINDS))
    context = {
        **_table(chosen_runs),
        "chosen": chosen_runs,
        "metrics": metrics,
        "shown": selected,
        "most_metrics": comparison.MAX_METRICS,
        "axes": AXES,
        "trained": any(run.trains for run in chosen_runs.runs),
        "differences": differing_settings,
        **_texts(chosen_runs, equal_count),
        "offered": other_runs.values_list("pk", "name", "owner__username")[:OFFERED_RUNS],
        "prompts_query": _query(request, "row", "visit"),
        "page": _document(chosen_runs, metrics, selected),
    }
    return render(request, "pages/compare/compare.html", context)


@require_safe
def table(request: HttpRequest) -> HttpResponse:
    """Render the table of the runs' current state, which the page swaps in."""
    return render(request, "pages/compare/_table.html", _table(comparison.chosen_runs(request)))


@require_safe
@gzip_page
def series(request: HttpRequest) -> HttpResponse:
    """Send curves over the requested axis, and the final values of the metric `of`."""
    chosen_runs = comparison.chosen_runs(request, MAX_CURVES)
    x, metric = request.GET.get("x", "step"), request.GET.get("of", "")
    newest_seqs = dict(pair.rpartition(":")[::2] for pair in request.GET.get("known", "").split(",") if ":" in pair)
    payload = curves(
        chosen_runs.runs,
        split_list(request.GET.get("metrics", ""))[: comparison.MAX_METRICS],
        x=x if x in AXES else "step",
        points=whole_parameter(request, "points", 400, 2, 1000),
        received={run: int(seq) for run, seq in newest_seqs.items() if seq.isdecimal()},
    )
    last_values = final_values(chosen_runs.runs, metric) if metric else {}
    with_finals = {**payload, "finals": last_values, "better": better_direction(metric)}
    return HttpResponse(msgspec.json.encode(with_finals), content_type="application/json")


@require_safe
def prompts(request: HttpRequest) -> HttpResponse:
    chosen_runs = comparison.chosen_runs(request)
    row = whole_parameter(request, "row", -1, -1, 2**31 - 1)
    looks = comparison.looks(chosen_runs.runs)
    prompt_answers = compare_prompts.answers(chosen_runs.runs, row, request.GET.get("visit", ""))
    context = {
        "apart": _name_parts(chosen_runs),
        "chosen": chosen_runs,
        "visited": prompt_answers,
        "visits": compare_prompts.VISITS,
        "columns": [(answer, looks[answer.run.pk]) for answer in prompt_answers["answers"]],
        "no_prompt": NO_SHARED_PROMPT if len(chosen_runs.runs) > 1 else NO_PROMPT,
    }
    return render(request, "pages/compare/_prompts.html", context)


@require_safe
def step_times(request: HttpRequest) -> HttpResponse:
    chosen_runs = comparison.chosen_runs(request)
    looks = comparison.looks(chosen_runs.runs)
    times = [(run, step_time.of_run(run)) for run in chosen_runs.runs]
    rows = [{"run": run, "look": looks[run.pk], "time": time} for run, time in times if time is not None]
    longest_s = max((time.seconds for _, time in times if time), default=0.0)
    context = {"step_times": rows, "longest": longest_s, "apart": _name_parts(chosen_runs)}
    return render(request, "pages/compare/_step_times.html", context)


@require_safe
def waterfalls(request: HttpRequest) -> HttpResponse:
    chosen_runs = comparison.chosen_runs(request, MAX_WATERFALLS)
    looks = comparison.looks(chosen_runs.runs)
    views = [(looks[run.pk], view) for run in chosen_runs.runs if (view := waterfall.of_run(run)) is not None]
    longest_s = max((view.seconds for _, view in views), default=0.0)
    context = {"views": views, "longest": longest_s, "beyond": chosen_runs.beyond, "apart": _name_parts(chosen_runs)}
    return render(request, "pages/compare/_waterfalls.html", context)


def _table(chosen_runs: ChosenRuns) -> dict[str, Any]:
    looks, now = comparison.looks(chosen_runs.runs), timezone.now()
    rows = [
        {
            "run": run,
            "look": looks[run.pk],
            "s": queries.summary(run, now, {}),
            "took": comparison.run_cost(run, now),
            "tokens": run.last_metrics.get("num_tokens"),
            "without": ",".join(other_run.pk for other_run in chosen_runs.runs if other_run is not run),
        }
        for run in chosen_runs.runs
    ]
    return {"rows": rows, "apart": _name_parts(chosen_runs), "begun": any(run.last_metrics for run in chosen_runs.runs)}


def _texts(chosen_runs: ChosenRuns, equal: int) -> dict[str, str]:
    has_several = len(chosen_runs.runs) > 1
    heading = f"Compare {len(chosen_runs.runs)} runs" if has_several else "Compare runs"
    names = ", ".join(run.name for run in chosen_runs.runs[:2])
    return {
        "heading": heading,
        "browser_title": f"{heading} · {names}" if names else heading,
        "equal": f"{counted(equal, 'setting')} {'is' if equal == 1 else 'are'} the same" if has_several else "",
        "nothing_differs": NOTHING_DIFFERS if has_several else "Add a second run to compare settings.",
    }


def _name_parts(chosen_runs: ChosenRuns) -> dict[str, Parts]:
    return distinguish(run.name for run in chosen_runs.runs)


def _document(chosen_runs: ChosenRuns, metrics: list[ComparedMetric], selected: list[str]) -> dict[str, Any]:
    looks = comparison.looks(chosen_runs.runs)
    name_parts = _name_parts(chosen_runs)
    return {
        "runs": [
            {
                "id": run.pk,
                "name": run.name,
                "short": own_words(name_parts[run.name]) if run.name in name_parts else run.name,
                **asdict(looks[run.pk]),
                "live": comparison.is_live(run),
                "series": reverse("run_series", args=[run.pk]),
            }
            for run in chosen_runs.runs
        ],
        "metrics": [asdict(metric) for metric in metrics],
        "shown": selected,
        "most": comparison.MAX_METRICS,
        "axes": AXES,
        "series": reverse("compare_series"),
        "table": reverse("compare_table"),
        "socket": "/ws/runs/",
    }


def _with_added(request: HttpRequest) -> str:
    """Return the query string with a run added, by its id or by its name (the newest run of that name)."""
    query = request.GET.copy()
    (entered,) = query.pop("add")[-1:]
    id_or_name = entered.strip().replace("\0", "")
    runs = queries.runs_for(request)
    run = runs.filter(pk=id_or_name).first() or runs.filter(name=id_or_name).first()
    query["runs"] = ",".join(filter(None, [query.get("runs", ""), run.pk if run else id_or_name.replace(",", " ")]))
    return query.urlencode(safe="/,:")


def _query(request: HttpRequest, *names: str) -> str:
    query = request.GET.copy()
    for name in set(query) - {"runs", *names}:
        del query[name]
    return query.urlencode()
