"""A run's timeline: its events as lines, and its phases with their durations."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from controlplane.platform.templatetags.figures import duration
from runs.engine import sentences
from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent
from runs.engine.states import FINAL, RunStatus
from runs.insight.metrics import run_charts
from workers.contract.wire.names import EventKind, Phase

PAGE_SIZE = 200
MIN_PHASE_S = 0.5
HOST = dict.fromkeys(("supervisor", "launcher", "reaper"), "the host")
CONTROL_PLANE = dict.fromkeys(("tick", "dispatcher", "claim", "ingest", "health"), "the control plane")
MACHINES = {**HOST, **CONTROL_PLANE}

PHASES: dict[str, tuple[str, str]] = {
    RunStatus.QUEUED: ("Waiting in the queue", "c8"),
    RunStatus.STARTING: ("Reaching the host", "c7"),
    Phase.CLAIMED: ("Accepted by the host", "c7"),
    Phase.PREPARING: ("Preparing", "c7"),
    Phase.FETCHING_MODEL: ("Downloading the model", "c4"),
    Phase.VLLM_STARTING: ("Loading vLLM", "c2"),
    Phase.VLLM_READY: ("vLLM ready", "c2"),
    Phase.TRAINER_STARTING: ("Starting the trainer", "c5"),
    RunStatus.RUNNING: ("Training", "c3"),
    Phase.STOPPING: ("Stopping", "c6"),
    Phase.VERIFYING: ("Checking that all resources are released", "c1"),
    Phase.UPLOADING: ("Uploading the checkpoint", "c4"),
}
"""Labels and colours of phases, by the status or the supervisor's phase that starts them."""
TRAINER_STAGE_COLOUR = "c5"


@dataclass(frozen=True)
class PhaseSpan:
    label: str
    colour: str
    at: datetime
    seconds: float
    going: bool = False

    @property
    def took(self) -> str:
        return duration_text(self.seconds)

    @property
    def css(self) -> str:
        return f"{self.colour} going" if self.going else self.colour

    @property
    def running_s(self) -> str:
        """The seconds so far, from which the page's script continues to count, or "" if the phase has ended."""
        return f"{self.seconds:.0f}" if self.going else ""


def lines(run: Run, before: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the newest PAGE_SIZE events, with `before` those before that event, and the `before` of the next page, or
    0 if there is none."""
    events = RunEvent.objects.filter(run=run).select_related("attempt").order_by("-pk")
    page_events = list((events.filter(pk__lt=before) if before else events)[: PAGE_SIZE + 1])
    older = [*page_events[1:], None]
    has_several = len(run.attempts.all()) > 1
    timeline = [_line(event, older_event, has_several) for event, older_event in zip(page_events, older, strict=True)][
        :PAGE_SIZE
    ]
    return timeline, timeline[-1]["id"] if len(page_events) > PAGE_SIZE else 0


def _line(event: RunEvent, previous: RunEvent | None, several_attempts: bool) -> dict[str, Any]:
    sentence = sentences.of_event(event)
    since = (event.at - previous.at).total_seconds() if previous else 0
    return {
        "id": event.pk,
        "at": event.at,
        "text": sentence,
        "actor": MACHINES.get(event.actor, event.actor),
        # People's actions are more prominent than those of machines.
        "tone": "soft" if event.actor and event.actor not in MACHINES else "muted",
        "beside": list(_details(event, sentence, several_attempts)),
        "css": "loud" if event.kind in run_charts.MARKED_CHARTS else "",
        "after": duration_text(since) if since >= 1 else "",
        "has_stacks": event.kind == EventKind.HANG,
    }


def _details(event: RunEvent, sentence: str, several_attempts: bool) -> Iterator[str]:
    if several_attempts:
        yield f"attempt {event.attempt.number}"
    if event.step is not None and not re.search(rf"\bstep {event.step}\b", sentence):
        yield f"step {event.step}"


def phases(run: Run, now: datetime | None = None) -> list[dict[str, Any]]:
    kinds = ("status", EventKind.PHASE, EventKind.STAGE, EventKind.TRAINING)
    events = RunEvent.objects.filter(run=run, kind__in=kinds).order_by("pk")
    by_attempt: dict[str, list[RunEvent]] = {}
    for event in events:
        by_attempt.setdefault(event.attempt_id, []).append(event)
    attempts = sorted(run.attempts.all(), key=lambda attempt: -attempt.number)
    now, has_several = now or timezone.now(), len(attempts) > 1
    spans = {attempt: _spans(attempt, by_attempt.get(attempt.pk, []), now) for attempt in attempts}
    return [
        {
            "attempt": attempt,
            "title": f"Attempt {attempt.number}" if has_several else "Phases",
            "spans": attempt_spans,
            "took": duration_text(sum(span.seconds for span in attempt_spans)),
            "minutes": sum(span.seconds for span in attempt_spans) / 60,
            "bar": [{"label": span.label, "value": span.seconds / 60, "colour": span.colour} for span in attempt_spans],
        }
        for attempt, attempt_spans in spans.items()
        if attempt_spans
    ]


def _spans(attempt: Attempt, events: Iterable[RunEvent], now: datetime) -> list[PhaseSpan]:
    """Return the phases except very short ones, each lasting until the next one begins. Since hosts' clocks may differ
    slightly, negative durations become 0."""
    starts = [(attempt.created_at, *PHASES[RunStatus.QUEUED])]
    end = now
    for event in events:
        if event.kind == "status" and event.data.get("to") in FINAL:
            end = event.at
            break
        if (phase := _begins(event)) and phase != starts[-1][1:]:
            starts.append((event.at, *phase))
    is_active = attempt.status not in FINAL
    ends = [at for at, _, _ in starts[1:]] + [end]
    spans = [
        PhaseSpan(label, colour, at, max(0.0, (to - at).total_seconds()), is_active and to is end)
        for (at, label, colour), to in zip(starts, ends, strict=True)
    ]
    return [span for span in spans if span.seconds >= MIN_PHASE_S or span.going]


def _begins(event: RunEvent) -> tuple[str, str] | None:
    if event.kind == EventKind.STAGE:
        stage = str(event.data.get("stage") or "").strip()
        return (f"Trainer: {stage}", TRAINER_STAGE_COLOUR) if stage else None
    if event.kind == EventKind.TRAINING:
        return PHASES[RunStatus.RUNNING]
    return PHASES.get(str(event.data.get("to" if event.kind == "status" else "phase")))


def duration_text(seconds: float) -> str:
    """Format a duration in whole seconds."""
    return duration(int(seconds)) if seconds >= 1 else "0 s"
