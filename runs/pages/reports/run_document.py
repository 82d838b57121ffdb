"""The report of a run: Markdown, the charts as pictures, and the exact spec."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from django.utils.html import strip_tags

from controlplane.platform import safe_yaml
from controlplane.platform.templatetags.figures import NO_VALUE, change, duration, mib, percent, sig
from runs.engine.models import Attempt, Run
from runs.engine.sentences import of_attempt, placement_text
from runs.engine.states import FINAL
from runs.insight.comparing import comparison
from runs.insight.comparing.curves import FinalValues, final_values
from runs.insight.evaluations import results
from runs.insight.health.drawn import with_bounds
from runs.insight.health.page import card, example_text
from runs.insight.metrics import run_charts
from runs.insight.metrics.series import kind_of, series
from runs.pages.reports import charts, pictures
from runs.pages.reports.markdown import archive, facts, image, plain, quote, sections, table

POINTS = 500
SPEC = "spec.yaml"
FINAL_COLUMNS = ("Last", "Mean of the last tenth", "Best")
EVALUATION = ("Model", "Dataset", "Rewards", "Prompts", "Reward", "pass@1", "pass@k", "Change", "95 % interval")


def report(run: Run, now: datetime, smoothing: float = charts.SMOOTHING) -> bytes:
    """Return a zip with `report.md`, `charts/…svg` and `spec.yaml`. `run` comes from `queries.run_for`."""
    drawn = dict(_charts(run, smoothing))
    files = {f"charts/{name}.svg": picture for name, (_, _, picture) in drawn.items() if picture}
    parts = [
        ("", facts(_head(run, now))),
        ("Setup", facts(_setup(run))),
        ("Changes", _changed_settings(run)),
        ("Metrics", _figures(run)),
        ("Health", _health(run)),
        ("Notes", quote(run.notes)),
        ("Evaluations", table(EVALUATION, map(_evaluation, results.of_run(run)), numbers=6)),
        ("Attempts and receipts", "\n\n".join(_receipt(attempt) for attempt in run.attempts.all())),
        ("Charts", _picture_sections(drawn)),
    ]
    document = sections(plain(run.name), parts)
    spec = safe_yaml.dump(run.spec, tuple(run.spec))
    return archive(f"{run.pk}-report", {"report.md": document, SPEC: spec, **files}, now)


def figure(value: float | None, form: str) -> str:
    number = {"percent": percent, "mib": mib}.get(form, sig)(value)
    unit = {"percent100": " %", "seconds": " s", "watts": " W", "tokens": " tokens", "rate": " tokens/s"}.get(form, "")
    if form == "tokens" and value == 1:
        unit = " token"
    return strip_tags(str(number)) + (unit if value is not None else "")


def final_cells(final: FinalValues, form: str) -> list[str]:
    best_cell = NO_VALUE if final["best"] is None else figure(final["best"], form)
    return [figure(final["last"], form), figure(final["mean"], form), best_cell]


def moment(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC" if at else NO_VALUE


def steps(run: Run) -> str:
    return f"{run.step:,}" + (f" of {run.max_steps:,}" if run.max_steps else "")


def status(attempt: Attempt) -> str:
    return f"{attempt.status}. {plain(of_attempt(attempt))}"


def settings_table(differing: Iterable[comparison.SettingDifference], names: Iterable[str]) -> str:
    rows = [[plain(difference.name), *(plain(value.text) for value in difference.values)] for difference in differing]
    return table(["Setting", *map(plain, names)], rows)


def _head(run: Run, now: datetime) -> Iterator[tuple[str, str]]:
    attempt, cost = run.latest(), comparison.run_cost(run, now)
    yield "Status", status(attempt)
    yield "Run", f"`{run.pk}`, by {plain(run.owner.get_username())}"
    yield "Steps", steps(run)
    yield "Launched", moment(run.created_at)
    yield "Started", moment(attempt.started_at)
    yield "Ended", moment(attempt.ended_at)
    yield "Time", "" if cost.seconds is None else duration(cost.seconds)
    yield "GPU-hours", "" if cost.gpu_hours is None else f"{sig(cost.gpu_hours)} {cost.cost}".strip()
    yield "Where", plain(placement_text(attempt))
    yield "Tags", ", ".join(map(plain, run.tags))
    yield "Report created", moment(now)


def _setup(run: Run) -> Iterator[tuple[str, str]]:
    settings = dict(comparison.settings(run))
    names = ("model.path", "model.revision", "dataset", "reward config", "environment", "profile", "precision")
    labels = {"model.path": "Model", "model.revision": "Revision"}
    for name in names:
        value = settings.get(name)
        if value not in (None, "none"):
            yield labels.get(name, name[:1].upper() + name[1:]), plain(comparison.text(value))
    rewards = run.spec.get("rewards") if isinstance(run.spec, dict) else None
    for reward in rewards if isinstance(rewards, list) else ():
        if isinstance(reward, dict):
            function, weight = plain(reward.get("function", "")), reward.get("weight", 1.0)
            yield f"Reward {plain(reward.get('name', ''))}", f"{function}, weight {comparison.text(weight)}"
    yield "All settings", f"[{SPEC}]({SPEC})"


def _changed_settings(run: Run) -> str:
    source = run.cloned_from
    if source is None:
        return "Not a clone of another run."
    differing_settings, _ = comparison.differences([source, run])
    origin = f"Cloned from {plain(source.name)} (`{source.pk}`)"
    if not differing_settings:
        return f"{origin}, with the same settings."
    return f"{origin}, with these changes:\n\n{settings_table(differing_settings, [source.name, 'This run'])}"


def _figures(run: Run) -> str:
    """Return a table of the training metrics' final values; the other metrics are in the charts."""
    groups = [group for group in run_charts.plan_of(run) if not group.folded]
    metrics = {metric.name: metric for metric in comparison.of_charts(groups)}
    training_metrics = [metric for metric in metrics.values() if kind_of(metric.name) == "train"]
    metrics_with_finals = [(metric, final_values([run], metric.name).get(run.pk)) for metric in training_metrics]
    rows = [
        [plain(metric.title), *final_cells(final, metric.format)]
        for metric, final in metrics_with_finals
        if final is not None
    ]
    return table(["Metric", *FINAL_COLUMNS], rows, numbers=3) or "No metrics have been recorded yet."


def _health(run: Run) -> str:
    health = card(run)
    if health is None:
        return "The run’s health was not assessed."
    verdict = f"**{health.word[:1].upper()}{health.word[1:]}**" + (f": {health.headline}" if health.headline else "")
    return "\n".join([f"{verdict}.", *([""] if health.findings else []), *map(_finding, health.findings)])


def _finding(finding: dict[str, Any]) -> str:
    follows = f" Probably follows from “{plain(finding['follows'])}”." if finding["follows"] else ""
    advice = f" Try: {plain(finding['try'])}" if finding.get("try") and not follows else ""
    value = f"{plain(finding['value_text'])} ({plain(finding['bound_text'])})"
    head = f"- **{plain(finding['title'])}**, {finding['level']}: {value}, since step {finding['since_step']:,}."
    examples = "; ".join(plain(example_text(example)) for example in finding.get("examples") or ())
    examples_sentence = f" Examples: {examples}." if examples else ""
    return f"{head} {plain(finding['sentence'])}{follows}{advice}{examples_sentence}"


def _evaluation(result: results.EvaluationResult) -> list[str]:
    model = "Before training" if result.step is None else f"Step {result.step:,}{', merged' if result.merged else ''}"
    gain = result.gain
    return [
        model if result.ended_well else f"{model} ({result.run.latest().status})",
        plain(result.run.dataset_version),
        plain(result.run.reward_version or "deleted since"),
        f"{len(result.prompts):,} × {result.setup.generations}",
        sig(result.reward),
        figure(result.pass_1, "percent"),
        figure(result.pass_k, "percent"),
        change(gain.mean) if gain else NO_VALUE,
        f"{change(gain.low)} to {change(gain.high)}" if gain else NO_VALUE,
    ]


def _receipt(attempt: Attempt) -> str:
    head = f"**Attempt {attempt.number}** on {plain(placement_text(attempt) or 'no host yet')}"
    head += f", from step {attempt.resume_step:,}" if attempt.resume_step else ""
    lines = [f"{head}: {plain(of_attempt(attempt))}"]
    if attempt.status in FINAL and attempt.detail:
        lines.append(plain(attempt.detail))
    receipt = attempt.receipt
    if not receipt:
        return " ".join([*lines, *(["It has no receipt."] if attempt.status in FINAL else [])])
    release_note = "all resources were released" if receipt.get("free") else "**not all resources were proved free**"
    ended_count = receipt.get("processes_ended") or 0
    processes = (
        f"{ended_count} process{'es' if ended_count > 1 else ''} ended in {duration(receipt.get('seconds_to_gone'))}"
    )
    lines.append(f"{processes if ended_count else 'No leftover processes'}; {release_note}.")
    for gpu in receipt.get("gpus") or ():
        free_after_s = gpu.get("seconds_to_free")
        release_time = "still in use" if free_after_s is None else f"free after {duration(free_after_s)}"
        usage = f"{figure(gpu.get('peak_mib'), 'mib')} at its peak, {figure(gpu.get('after_mib'), 'mib')} at the end"
        lines.append(f"GPU {gpu.get('gpu')}: {usage}, {release_time}.")
    return " ".join(lines)


DrawnChart = tuple[str, str, str]
"""A chart as (group, title, SVG picture, which is "" if the chart has no values)."""


def _charts(run: Run, smoothing: float) -> Iterator[tuple[str, DrawnChart]]:
    groups = with_bounds(run_charts.plan_of(run), run)
    points = series(run, run_charts.metrics(groups), POINTS)["series"]
    numbers = charts.Numbers(points, run.trainings())
    shown_metrics = set(run_charts.metrics([group for group in groups if not group.folded]))
    for group in groups:
        for chart in group.charts:
            # Most folded charts repeat another chart on held-out rows.
            if group.folded and all(line.metric.removeprefix("eval_") in shown_metrics for line in chart.lines):
                continue
            picture = charts.picture(chart, numbers, smoothing)
            yield chart.id, (group.title, chart.title, pictures.svg(picture) if picture else "")


def _picture_sections(drawn: dict[str, DrawnChart]) -> str:
    lines: list[str] = []
    for title in dict.fromkeys(group for group, _, _ in drawn.values()):
        group_charts = [(name, chart) for name, chart in drawn.items() if chart[0] == title]
        images = [image(title, f"charts/{name}.svg") for name, (_, title, picture) in group_charts if picture]
        empty_titles = [plain(title) for _, (_, title, picture) in group_charts if not picture]
        lines += [f"### {plain(title)}", *images] if images or empty_titles else []
        lines += [f"No values: {', '.join(empty_titles)}."] if empty_titles else []
    return "\n\n".join(lines)
