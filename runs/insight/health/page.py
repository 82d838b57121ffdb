"""The health card of the run page: the stored assessment's verdict, its findings and all checks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse

from controlplane.platform.templatetags.figures import significant
from runs.engine.models import HealthPreset, Run
from runs.engine.states import FINAL, RunStatus
from runs.insight.health.judging.rules import BY_ID
from runs.insight.health.presets import choices, value_text
from runs.insight.metrics import run_charts

VERDICTS = {"bad": "Unhealthy", "warning": "Needs attention", "well": "Healthy", "unknown": "Not enough data yet"}
ENDED = {"unknown": "Too short to judge"}
CHIPS = {"bad": "bad", "warning": "warn", "well": "good"}
STATES = {
    "well": "ok",
    "waits": "not enough data",
    "gone": "no longer logged",
    "apart": "doesn’t apply",
    "off": "off",
}
ICONS = {"bad": "octagon-alert", "warning": "triangle-alert", "well": "circle-check", "unknown": "circle-dashed"}


@dataclass(frozen=True)
class Check:
    title: str
    about: str
    state: str
    state_word: str
    value: str
    bound: str
    source: str
    why: str


@dataclass(frozen=True)
class Card:
    verdict: str
    word: str
    icon: str
    headline: str
    findings: list[dict[str, Any]]
    checks: list[Check]
    step: int
    at: datetime | None
    preset: str
    preset_id: int | None
    presets: list[HealthPreset]
    ended: bool

    @property
    def chip(self) -> str:
        return CHIPS.get(self.verdict, "")


def card(run: Run) -> Card | None:
    """Return the run's health card, or None for runs that have no health, such as queued runs and trials. This makes
    one query."""
    attempt = run.latest()
    if run.kind != "train" or attempt.status == RunStatus.QUEUED or (attempt.started_at is None and not run.health):
        return None
    health = run.health
    findings = _findings(run)
    verdict = str(health.get("verdict", "unknown"))
    ended = attempt.status in FINAL
    has_failed = attempt.status == RunStatus.FAILED and verdict == "well"
    verdicts = VERDICTS | ENDED if ended else VERDICTS
    rows = choices()
    matching_presets = (row for row in rows if row.pk == run.preset_id)
    preset = next(matching_presets, None) or next((row for row in rows if row.is_default), None)
    return Card(
        # A green verdict next to “failed” would suggest that all is well.
        verdict="unknown" if has_failed else verdict,
        word="Healthy until it failed" if has_failed else verdicts.get(verdict, verdict),
        icon=ICONS["unknown"] if has_failed else ICONS.get(verdict, ICONS["unknown"]),
        headline=_headline(findings, verdict, ended=ended),
        findings=findings,
        checks=[_check(check) for check in health.get("checks") or () if check["rule"] in BY_ID],
        step=int(health.get("step") or 0),
        at=datetime.fromisoformat(health["at"]) if health.get("at") else None,
        preset=preset.name if preset else str(health.get("preset") or ""),
        preset_id=preset.pk if preset else None,
        presets=rows,
        ended=ended,
    )


def _findings(run: Run) -> list[dict[str, Any]]:
    """Return the open findings, each with its links and the title of the finding that probably caused it."""
    stored_findings = [finding for finding in run.health.get("findings") or () if finding["rule"] in BY_ID]
    charts = {
        line.metric: chart.id
        for group in (run_charts.plan_of(run) if stored_findings else ())
        for chart in group.charts
        for line in chart.lines
    }
    return [
        {
            **finding,
            "follows": BY_ID[cause].title if (cause := finding.get("cause")) in BY_ID else "",
            "links": list(_links(run, finding, charts)),
        }
        for finding in stored_findings
    ]


def _links(run: Run, finding: Mapping[str, Any], charts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    rule = BY_ID[finding["rule"]]
    if chart := charts.get(finding["metric"]):
        yield "Chart", f"?tab=charts&c.large={chart}"
    if find := finding.get("find"):
        yield "Completions", f"?tab=completions&{find}"
    elif rule.read:
        yield "Completions", "?tab=completions"
    for example in finding.get("examples") or ():
        group = reverse("run_completion_group", args=[run.pk, example["group"]])
        yield example_text(example), f"{group}#completion-{example['completion']}"
    if rule.logs:
        yield "Logs", "?tab=logs"
    if rule.field and finding["try"]:
        yield f"Clone and change {rule.field}", f"{reverse('clone', args=[run.pk])}#id_{rule.field}"


def example_text(example: Mapping[str, Any]) -> str:
    """Name a stored completion that shows a finding, with the figures that make it an example."""
    parts = [f"reward {significant(example['reward'])}"]
    if example["score"] is not None:
        parts.append(f"{example['component']} {significant(example['score'])}")
    if example["tokens"] is not None:
        parts.append(f"{example['tokens']:,} tokens")
    return f"Step {example['step']:,}, completion {example['completion']}: {', '.join(parts)}"


def _headline(findings: Sequence[dict[str, Any]], verdict: str, *, ended: bool) -> str:
    if verdict == "unknown":
        return "" if ended else "the assessment starts with the first rewards"
    causes = [finding for finding in findings if not finding.get("follows")]
    levels = [finding["level"] for finding in causes]
    bad, warnings, notes = (levels.count(level) for level in ("bad", "warning", "note"))
    parts = [f"{bad} bad"] if bad else []
    for count, noun in ((warnings, "warning"), (notes, "note")):
        if count:
            parts.append(f"{count} {noun}{'s' if count > 1 else ''}")
    if consequence_count := len(findings) - len(causes):
        parts.append(f"{consequence_count} that probably follow{'' if consequence_count > 1 else 's'}")
    return ", ".join(parts)


def _check(check: dict[str, Any]) -> Check:
    rule = BY_ID[check["rule"]]
    value, state = check.get("value"), STATES.get(check["state"], check["state"])
    return Check(
        title=rule.title,
        about=rule.about,
        state=check["state"],
        state_word=f"resolved at step {check['resolved']:,}" if check.get("resolved") else state,
        value="" if value is None else value_text(value, rule.format),
        bound=str(check.get("bound") or ""),
        source=str(check.get("source") or rule.source),
        why=str(check.get("why") or ""),
    )
