"""The report of several runs side by side: what differs, their figures, and their curves over each other."""

from collections.abc import Sequence
from datetime import datetime

from controlplane.platform.templatetags.figures import NOTHING, duration, sig
from runs.engine.gain import Spread
from runs.engine.models import Run
from runs.engine.sentences import counted
from runs.insight.comparing import comparison
from runs.insight.comparing.comparison import ComparedMetric, SettingDifference
from runs.insight.comparing.curves import FinalValues, curves, finals
from runs.pages.reports import charts, pictures
from runs.pages.reports.markdown import archive, facts, image, plain, sections, table
from runs.pages.reports.run_document import FINALS, ended, figure, moment, settings_table, status, steps

POINTS = 400
SEED = "grpo.seed"
Finals = dict[str, dict[str, FinalValues]]
"""metric -> run"""
Groups = list[tuple[str, list[Run]]]
"""(settings, runs) of runs with the same settings but for the seed."""


def report(
    runs: Sequence[Run], metrics: Sequence[ComparedMetric], x: str, now: datetime, smoothing: float = charts.SMOOTHING
) -> bytes:
    """Write a zip with `report.md` and `charts/…svg`. `runs`: with their attempts; `x`: a key of `curves.AXES`."""
    unlike, equal = comparison.differences(runs)
    alike = _alike(runs, unlike)
    names, looks = _names(runs), comparison.looks(runs)
    lines = curves(runs, [metric.name for metric in metrics], x=x, points=POINTS)["series"]
    ends = {metric.name: finals(runs, metric.name) for metric in metrics}
    together = [(label, [run.pk for run in group]) for label, group in alike]
    files: dict[str, str] = {}
    shown = []
    for number, metric in enumerate(metrics, 1):
        drawn = [charts.overlaid(metric, lines[metric.name], names, looks, x, smoothing)]
        drawn += [charts.spread(metric, lines[metric.name], together, x, smoothing)] if alike else []
        for part, picture in zip(("", "-spread"), drawn, strict=False):
            if picture is not None:
                path = f"charts/{number:02}{part}.svg"
                files[path] = pictures.svg(picture)
                shown.append(image(picture.title, path))
    same = f"{counted(equal, 'setting')} {'is' if equal == 1 else 'are'} the same."
    parts = [
        ("", facts([("Report made", moment(now)), ("Runs", str(len(runs)))])),
        ("Runs", table(["Run", "Id", "Status", "Steps", "Time", "GPU-hours", "Cost"], _rows(runs, now), numbers=4)),
        ("Settings that differ", (settings_table(unlike, names.values()) or "Nothing differs.") + "\n\n" + same),
        ("Figures", _figures(runs, metrics, ends, names)),
        ("Groups: mean ± standard deviation", _groups(alike, metrics, ends)),
        ("Curves", "\n\n".join(shown) or "No values were recorded yet."),
    ]
    text = sections(f"Comparison of {counted(len(runs), 'run')}", parts)
    return archive("comparison-report", {"report.md": text, **files}, now)


def _alike(runs: Sequence[Run], unlike: Sequence[SettingDifference]) -> Groups:
    """Group runs by all differing settings but the seed; [] if no two runs are alike."""
    telling = [difference for difference in unlike if difference.name != SEED]
    by_settings: dict[tuple[str, ...], list[Run]] = {}
    for index, run in enumerate(runs):
        by_settings.setdefault(tuple(difference.values[index].text for difference in telling), []).append(run)
    if max(map(len, by_settings.values()), default=0) < 2:
        return []
    names = [difference.name.removeprefix("grpo.") for difference in telling]
    return [
        (", ".join(f"{name} {value[:40]}" for name, value in zip(names, values, strict=True)) or "all runs", group)
        for values, group in by_settings.items()
    ]


def _names(runs: Sequence[Run]) -> dict[str, str]:
    """Name each run uniquely: with the id where several share a name."""
    names = [run.name for run in runs]
    return {run.pk: run.name if names.count(run.name) == 1 else f"{run.name} ({run.pk})" for run in runs}


def _rows(runs: Sequence[Run], now: datetime) -> list[list[str]]:
    rows = []
    for run in runs:
        attempt, took = run.latest(), comparison.run_cost(run, now)
        time, cost = NOTHING if took.seconds is None else duration(took.seconds), took.cost or NOTHING
        rows.append([plain(run.name), f"`{run.pk}`", status(attempt), steps(run), time, sig(took.gpu_hours), cost])
    return rows


def _figures(runs: Sequence[Run], metrics: Sequence[ComparedMetric], ends: Finals, names: dict[str, str]) -> str:
    parts = []
    for metric in metrics:
        rows = []
        for run in runs:
            final = ends[metric.name].get(run.pk)
            rows.append([plain(names[run.pk]), *(ended(final, metric.format) if final else [NOTHING] * 3)])
        parts.append(f"### {plain(metric.title)}\n\n{table(['Run', *FINALS], rows, numbers=3)}")
    return "\n\n".join(parts) or "No figures were recorded yet."


def _groups(alike: Groups, metrics: Sequence[ComparedMetric], ends: Finals) -> str:
    rows = []
    for label, group in alike:
        cells = [plain(label), str(len(group))]
        for metric in metrics:
            own = [ends[metric.name].get(run.pk) for run in group]
            spread = Spread.of([final["mean"] if final else None for final in own])
            deviation = "" if spread.deviation is None else f" ± {figure(spread.deviation, metric.format)}"
            cells.append(figure(spread.mean, metric.format) + deviation)
        rows.append(cells)
    head = ["Settings", "Runs", *(plain(metric.title) for metric in metrics)]
    about = "Of each run’s mean over its last tenth. The runs of a group differ in their seeds alone."
    return f"{about}\n\n{table(head, rows, numbers=1 + len(metrics))}" if rows else ""
