"""A run's row in the run list, with the contents of its cells."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.platform.templatetags.figures import about, ago
from runs.engine import queries
from runs.engine.models import Attempt, Run
from runs.engine.sentences import placement_text
from runs.engine.states import ACTIVE, RunStatus
from runs.insight.comparing import comparison
from runs.pages.run_list.columns import Column, Values
from runs.pages.run_list.query import HEALTH

TAGS_SHOWN = 2


@dataclass(frozen=True)
class RunListRow:
    run: Run
    summary: queries.Summary
    attempt: Attempt
    where: str
    values: Values
    cells: list[tuple[str, str]]

    @property
    def model(self) -> str:
        """The last part of the model's path or hub id, or empty if the spec can't be read."""
        return self._part("model", "path").rstrip("/").rsplit("/", 1)[-1]

    @property
    def about(self) -> str:
        return f"{self._part('model', 'path')} trained on {self._part('data', 'name')}"

    def _part(self, part: str, name: str) -> str:
        return str(comparison.part(self.run.spec, part).get(name, ""))

    @property
    def live(self) -> bool:
        return self.attempt.status in ACTIVE

    @property
    def tags(self) -> list[str]:
        return list(self.run.tags[:TAGS_SHOWN])

    @property
    def tags_beyond(self) -> list[tuple[int, list[str]]]:
        """For each number of tags that a narrow cell may show, that number and the hidden tags."""
        tags = list(self.run.tags)
        return [(shown_count, tags[shown_count:]) for shown_count in range(TAGS_SHOWN, -1, -1) if tags[shown_count:]]

    @property
    def model_title(self) -> str:
        return self.about if self.model else ""

    @property
    def failure(self) -> str:
        return self.summary["sentence"] if self.attempt.status == RunStatus.FAILED else ""

    @property
    def note(self) -> str | SafeString:
        """A note on anything unusual about the run's progress, otherwise the time left."""
        summary = self.summary
        if summary["place"] and self.run.step:
            return format_html('<span class="muted small cut">{} in the queue</span>', summary["place"])
        if summary["out_of_reach_since"]:
            silence = ago(self.attempt.last_seen_at)
            return format_html('<span class="warn small cut">unreachable for {}</span>', silence)
        if self.attempt.status == RunStatus.RUNNING and summary["stop_requested"]:
            return SafeString('<span class="warn small cut">stopping</span>')
        if self.attempt.status == RunStatus.RUNNING and summary["eta_s"]:
            return format_html('<span class="muted small cut">{} left</span>', about(summary["eta_s"]))
        return ""

    @property
    def before_first_step(self) -> SafeString:
        if self.summary["out_of_reach_since"] and self.note:
            return SafeString(self.note)
        sentence, position = self.summary["sentence"], self.summary["place"]
        tone = " bad" if self.attempt.status == RunStatus.FAILED else ""
        label = f"{position} · {sentence}" if position else sentence
        return format_html('<span class="soft small cut{}" title="{}">{}</span>', tone, sentence, label)

    @property
    def failed_at_once(self) -> bool:
        return self.attempt.status == RunStatus.FAILED and not self.run.step

    @property
    def health(self) -> dict[str, Any] | None:
        if self.attempt.status == RunStatus.FAILED:
            return {"word": self.attempt.reason.replace("_", " "), "chip": "bad", "titles": []}
        return _health(self.run.health)


def row_of(run: Run, queue_positions: Mapping[str, int], columns: list[Column]) -> RunListRow:
    attempt = run.latest()
    summary = queries.summary(run, positions=queue_positions)
    values = Values(run)
    return RunListRow(run, summary, attempt, placement_text(attempt), values, values.cells(columns))


def _health(assessment: Mapping[str, Any]) -> dict[str, Any] | None:
    """Describe the verdict and list the findings, the worst first; return None without a known verdict."""
    verdict = assessment.get("verdict")
    if verdict not in HEALTH:
        return None
    findings = [finding for finding in assessment.get("findings", []) if finding.get("level") in ("bad", "warning")]
    findings.sort(key=lambda finding: list(HEALTH).index(finding["level"]))
    chip = {"bad": "bad", "warning": "warn", "well": "good"}[verdict]
    titles = [str(finding.get("title", "")) for finding in findings]
    return {"word": HEALTH[verdict].lower(), "chip": chip, "titles": titles}
