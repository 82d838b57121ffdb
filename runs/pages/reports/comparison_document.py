"""The report that compares several runs: their differing settings, their metrics and their overlaid curves."""

from collections.abc import Sequence
from datetime import datetime

from controlplane.platform.templatetags.figures import NO_VALUE, duration, sig
from runs.engine.gain import Spread
from runs.engine.models import Run
from runs.engine.sentences import counted
from runs.insight.comparing import comparison
from runs.insight.comparing.comparison import ComparedMetric, SettingDifference
from runs.insight.comparing.curves import FinalValues, curves, final_values
from runs.pages.reports import charts, pictures
from runs.pages.reports.markdown import archive, facts, image, plain, sections, table
from runs.pages.reports.run_document import FINAL_COLUMNS, figure, final_cells, moment, settings_table, status, steps

POINTS = 400
SEED = "grpo.seed"
Finals = dict[str, dict[str, FinalValues]]
"""Final values by metric and run id."""
Groups = list[tuple[str, list[Run]]]
"""Groups as (settings, runs), whose runs have the same settings except for the seed."""


def report(
    runs: Sequence[Run], metrics: Sequence[ComparedMetric], x: str, now: datetime, smoothing: float = charts.SMOOTHING
) -> bytes:
    """Return a zip with `report.md` and `charts/…svg`. `runs` need their attempts; `x` is a key of `curves.AXES`."""
    differing_settings, equal_count = comparison.differences(runs)
    groups = _groups_by_settings(runs, differing_settings)
    names, looks = _names(runs), comparison.looks(runs)
    lines = curves(runs, [metric.name for metric in metrics], x=x, points=POINTS)["series"]
    finals_by_metric = {metric.name: final_values(runs, metric.name) for metric in metrics}
    ids_by_group = [(label, [run.pk for run in group]) for label, group in groups]
    files: dict[str, str] = {}
    images = []
    for number, metric in enumerate(metrics, 1):
        metric_pictures = [charts.overlay(metric, lines[metric.name], names, looks, x, smoothing)]
        metric_pictures += [charts.spread(metric, lines[metric.name], ids_by_group, x, smoothing)] if groups else []
        for part, picture in zip(("", "-spread"), metric_pictures, strict=False):
            if picture is not None:
                path = f"charts/{number:02}{part}.svg"
                files[path] = pictures.svg(picture)
                images.append(image(picture.title, path))
    same_note = f"{counted(equal_count, 'setting')} {'is' if equal_count == 1 else 'are'} the same."
    parts = [
        ("", facts([("Report created", moment(now)), ("Runs", str(len(runs)))])),
        ("Runs", table(["Run", "Id", "Status", "Steps", "Time", "GPU-hours", "Cost"], _rows(runs, now), numbers=4)),
        (
            "Settings that differ",
            (settings_table(differing_settings, names.values()) or "Nothing differs.") + "\n\n" + same_note,
        ),
        ("Metrics", _figures(runs, metrics, finals_by_metric, names)),
        ("Groups: mean ± standard deviation", _groups(groups, metrics, finals_by_metric)),
        ("Curves", "\n\n".join(images) or "No values have been recorded yet."),
    ]
    document = sections(f"Comparison of {counted(len(runs), 'run')}", parts)
    return archive("comparison-report", {"report.md": document, **files}, now)


def _groups_by_settings(runs: Sequence[Run], differing: Sequence[SettingDifference]) -> Groups:
    """Group runs by all differing settings except the seed; return [] if every group would have one run."""
    grouped_by = [difference for difference in differing if difference.name != SEED]
    by_settings: dict[tuple[str, ...], list[Run]] = {}
    for index, run in enumerate(runs):
        by_settings.setdefault(tuple(difference.values[index].text for difference in grouped_by), []).append(run)
    if max(map(len, by_settings.values()), default=0) < 2:
        return []
    names = [difference.name.removeprefix("grpo.") for difference in grouped_by]
    return [
        (", ".join(f"{name} {value[:40]}" for name, value in zip(names, values, strict=True)) or "all runs", group)
        for values, group in by_settings.items()
    ]


def _names(runs: Sequence[Run]) -> dict[str, str]:
    names = [run.name for run in runs]
    return {run.pk: run.name if names.count(run.name) == 1 else f"{run.name} ({run.pk})" for run in runs}


def _rows(runs: Sequence[Run], now: datetime) -> list[list[str]]:
    rows = []
    for run in runs:
        attempt, took = run.latest(), comparison.run_cost(run, now)
        time, cost = NO_VALUE if took.seconds is None else duration(took.seconds), took.cost or NO_VALUE
        rows.append([plain(run.name), f"`{run.pk}`", status(attempt), steps(run), time, sig(took.gpu_hours), cost])
    return rows


def _figures(
    runs: Sequence[Run], metrics: Sequence[ComparedMetric], finals_by_metric: Finals, names: dict[str, str]
) -> str:
    parts = []
    for metric in metrics:
        rows = []
        for run in runs:
            final = finals_by_metric[metric.name].get(run.pk)
            rows.append([plain(names[run.pk]), *(final_cells(final, metric.format) if final else [NO_VALUE] * 3)])
        parts.append(f"### {plain(metric.title)}\n\n{table(['Run', *FINAL_COLUMNS], rows, numbers=3)}")
    return "\n\n".join(parts) or "No metrics have been recorded yet."


def _groups(groups: Groups, metrics: Sequence[ComparedMetric], finals_by_metric: Finals) -> str:
    rows = []
    for label, group in groups:
        cells = [plain(label), str(len(group))]
        for metric in metrics:
            group_finals = [finals_by_metric[metric.name].get(run.pk) for run in group]
            spread = Spread.of([final["mean"] if final else None for final in group_finals])
            deviation = "" if spread.deviation is None else f" ± {figure(spread.deviation, metric.format)}"
            cells.append(figure(spread.mean, metric.format) + deviation)
        rows.append(cells)
    head = ["Settings", "Runs", *(plain(metric.title) for metric in metrics)]
    about = "Statistics of each run’s mean over its last tenth. The runs of a group differ only in their seeds."
    return f"{about}\n\n{table(head, rows, numbers=1 + len(metrics))}" if rows else ""
