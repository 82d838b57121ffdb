"""The content of a shared run: state, metrics, charts, health and, optionally, the newest completions, but never the
name of a host or person, a path, a log, or a link into the installation."""

from collections.abc import Iterator
from typing import Any

from django.urls import reverse

from runs.engine import queries
from runs.engine.models import Run
from runs.engine.sharing.models import SharedLink
from runs.engine.spec import spec_of
from runs.engine.states import ACTIVE, FINAL, sentence
from runs.insight.completions import groups
from runs.insight.completions.reading import valid_groups
from runs.insight.completions.solving import names
from runs.insight.health.drawn import with_bounds
from runs.insight.health.page import card
from runs.insight.metrics import run_charts
from runs.insight.metrics.chart_spec import Tile
from workers.contract.wire.documents import ContractError

GROUPS = 6


def run_of(link: SharedLink) -> Run:
    run: Run = queries.with_attempts(Run.objects.filter(pk=link.run_id)).get()
    return run


def now(link: SharedLink, run: Run) -> dict[str, Any]:
    attempt, figures = run.latest(), queries.summary(run, positions={})
    data = run.spec.get("data") if isinstance(run.spec, dict) else None
    return {
        "run": run,
        "s": figures,
        "live": attempt.status in ACTIVE,
        "final": attempt.status in FINAL,
        # Details are not shared, because they quote logs and name hosts.
        "sentence": sentence(attempt.reason) if attempt.status in FINAL else "",
        "ran": run.ran_s(),
        "model": _model(run),
        "data": f"{data.get('name')} v{data.get('version')}" if isinstance(data, dict) else "",
        "tiles": [(tile, run.last_metrics.get(tile.metric)) for tile in _tiles(run)],
        "health": card(run),
        "components": names(run.spec),
        "newest": list(_groups(run)) if link.with_completions else None,
    }


def page(link: SharedLink, run: Run, token: str) -> dict[str, Any]:
    charts = with_bounds(run_charts.plan_of(run), run)
    document = {
        "id": "run",
        "series": reverse("shared_series", args=[token]),
        "now": reverse("shared_now", args=[token]),
        "charts": run_charts.as_json(charts),
        "marked": [],
        "events": [],
        "starts": run.trainings(),
    }
    return {**now(link, run), "link": link, "shared": True, "groups": charts, "page": document}


def metrics(run: Run) -> list[str]:
    """Return the metrics of the run's charts, the only ones that a link reveals."""
    return run_charts.metrics(run_charts.plan_of(run))


def _tiles(run: Run) -> list[Tile]:
    try:
        tiles = run_charts.tiles(spec_of(run), run_charts.gpus_of(run)) if run.trains else []
    except ContractError:  # the spec is from another version, so its tiles are unknown
        return []
    return [tile for tile in tiles if tile.note or tile.metric in run.last_metrics]


def _model(run: Run) -> str:
    model = run.spec.get("model") if isinstance(run.spec, dict) else None
    path = str(model.get("path") or "") if isinstance(model, dict) else ""
    return path if path.count("/") == 1 and path[0].isalnum() else path.rstrip("/").rpartition("/")[2]


def _groups(run: Run) -> Iterator[dict[str, Any]]:
    for row in valid_groups(run).filter(mode="train").order_by("-step", "line")[:GROUPS]:
        completions = groups.completions(row.data)
        if any(completion.text is not None for completion in completions):
            yield {"step": row.step, "prompt": str(row.data.get("prompt") or ""), "completions": completions}
