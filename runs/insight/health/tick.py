"""Assessment of active and recently ended runs: it is stored with the run, and changes are recorded as events."""

import logging
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import OuterRef, Prefetch, Q, Subquery

from controlplane.platform.http import outage
from runs.engine import hints
from runs.engine.alerts import delivery
from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent
from runs.engine.states import RunStatus
from runs.insight.health import evidence, examples, memories
from runs.insight.health.assess import MACHINE_RULES, Finding, alerts, assess, news
from runs.insight.health.judging.machine_signals import MIN_PAUSE_S
from runs.insight.health.presets import Preset, Presets
from runs.insight.health.reading import read
from workers.contract.wire.documents import ContractError
from workers.contract.wire.names import EventKind

log = logging.getLogger(__name__)

ACTOR = "health"
ALERT = "alert"
ASSESSMENT_INTERVAL = timedelta(seconds=10)
VIEWER_INTERVAL = timedelta(seconds=30)
"""Interval at which viewers get new values while the verdict and the findings stay the same."""
BUDGET_S = 1.0
LATE_LINES_PERIOD = timedelta(minutes=10)
"""Time for which an ended run is still assessed, since its last lines may arrive late."""


def tick(now: datetime) -> int:
    """Assess the runs that are due and return their number."""
    presets: Presets | None = None
    until = time.monotonic() + BUDGET_S
    assessed = 0
    attempts = Attempt.objects.select_related("host").order_by("number")
    for run_id in _due_runs(now):
        if time.monotonic() > until:
            break
        presets = presets or Presets()
        try:
            # Runs are read one at a time, since specs and memories are large and the round may end early.
            run = Run.objects.prefetch_related(Prefetch("attempts", attempts)).get(pk=run_id)
            assessed += look_at(run, presets.of(run), now)
        except Exception as error:  # loop boundary: one run that can't be judged must not block the others
            if outage.is_away(error):
                raise
            log.exception("the health of run %s can't be determined", run_id)
    return assessed


def look_at(run: Run, preset: Preset, now: datetime, *, with_events: bool = True) -> bool:
    """Assess one run and store the result. Return False if the spec can't be read or another process was first.

    With `with_events`, opened and closed findings are recorded as events, which raise alerts.
    """
    attempt = run.latest()
    memory = run.health.get("memory") or {}
    try:
        history = read(run, attempt, memory)
    except ContractError:
        return False  # the run's page reports it
    moved_at = _moved_at(run, memory, history.step, now)
    if attempt.status == RunStatus.RUNNING and attempt.last_seen_at is not None:
        # Only until the supervisor's last contact: a silent host or control plane is not a stalled run.
        history.quiet_s = max(0.0, (min(now, attempt.last_seen_at) - moved_at).total_seconds())
        if history.quiet_s > MIN_PAUSE_S:
            history.hang = _hang(attempt, history.step)
    health = assess(history, preset, run.health, now)
    examples.show(run, history.config, health["findings"], run.health, history.step)
    health["memory"] = {
        **memories.to_memory(history),
        "columns": evidence.to_memory(history),
        "attempt": attempt.number,
        "seq": run.last_seq,
        "step": history.step,
        "moved_at": moved_at.isoformat(),
    }
    return _store(run, attempt, health, now, with_events=with_events)


def _hang(attempt: Attempt, step: int) -> str:
    events = attempt.events.filter(kind=EventKind.HANG, step__gte=step).order_by("-seq")
    return str((events.values_list("data", flat=True).first() or {}).get("who", ""))


def _due_runs(now: datetime) -> list[str]:
    """Return the ids of active and recently ended runs with news since their last assessment, longest waiting first."""
    active = Q(status__in=(RunStatus.RUNNING, RunStatus.STOPPING)) | Q(ended_at__gte=now - LATE_LINES_PERIOD)
    current = Attempt.objects.filter(active, started_at__isnull=False).values("run_id")
    newest = Attempt.objects.filter(run=OuterRef("pk")).order_by("-number").values("status")[:1]
    runs = Run.objects.filter(pk__in=current, kind="train").order_by("pk")
    candidates = runs.values_list("pk", "last_seq", "health__at", "health__memory__seq", Subquery(newest))
    due_attempts = [
        (str(at or ""), pk)
        for pk, last, at, seen_seq, status in candidates
        if _is_due(last, at, seen_seq or 0, status, now)
    ]
    return [pk for _, pk in sorted(due_attempts)]


def _is_due(last_seq: int, at: str | None, seen_seq: int, status: str, now: datetime) -> bool:
    if at is None:
        return True
    age = now - datetime.fromisoformat(at)
    has_news = status == RunStatus.RUNNING or last_seq > seen_seq  # a running run's silence is news too
    return has_news and not timedelta(0) <= age < ASSESSMENT_INTERVAL


def _moved_at(run: Run, memory: Mapping[str, Any], step: int, now: datetime) -> datetime:
    """Return when the control plane first saw this step."""
    attempt = run.latest()
    if memory.get("step") == step and memory.get("attempt") == attempt.number and memory.get("moved_at"):
        return min(now, datetime.fromisoformat(memory["moved_at"]))
    return now


def _store(run: Run, attempt: Attempt, health: dict[str, Any], now: datetime, *, with_events: bool) -> bool:
    with transaction.atomic():
        # Writers of events lock the attempt's row so that event ids follow the order of commits.
        Attempt.objects.select_for_update().only("pk").get(pk=attempt.pk)
        before: dict[str, Any] = Run.objects.values_list("health", flat=True).get(pk=run.pk)
        if before.get("at") != run.health.get("at"):
            return False
        notifies_viewers = _shown_findings(before) != _shown_findings(health) or _is_old(before.get("told_at"), now)
        health["told_at"] = now.isoformat() if notifies_viewers else before["told_at"]
        Run.objects.filter(pk=run.pk).update(health=health)
        events = list(_events(attempt, before, health, now)) if with_events else []
        if events or notifies_viewers:
            transaction.on_commit(lambda: hints.changed(run.pk))
    run.health = health
    return True


def _events(attempt: Attempt, before: Mapping[str, Any], after: Mapping[str, Any], now: datetime) -> Iterable[RunEvent]:
    for finding, message in news(before, after):
        event = _event(attempt, finding, "open", after["step"], now)
        if message:
            delivery.notify(event)
        yield event
    still_open = {finding["rule"] for finding in after["findings"] if finding["level"] != "note"}
    for rule, finding in alerts(before).items():
        if rule not in still_open:
            yield _event(attempt, finding, "closed", after["step"], now)


def _event(attempt: Attempt, finding: Finding, state: str, step: int, now: datetime) -> RunEvent:
    data = {name: finding[name] for name in ("rule", "level", "title", "value", "bound", "sentence")}
    return RunEvent.objects.create(
        run_id=attempt.run_id,
        attempt=attempt,
        at=now,
        kind=ALERT,
        step=step,
        actor=ACTOR,
        data={**data, "state": state, "step": step},
    )


def _is_old(told_at: str | None, now: datetime) -> bool:
    """Return whether the values on pages are due for an update even if the verdict is the same."""
    return told_at is None or not timedelta(0) <= now - datetime.fromisoformat(told_at) < VIEWER_INTERVAL


def _shown_findings(health: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the parts of an assessment whose changes viewers see at once, such as the first value of a check.

    Checks of the machine are omitted, because their values come and go with the host's samples.
    """
    findings = [(finding["rule"], finding["level"]) for finding in health.get("findings") or ()]
    checks = (check for check in health.get("checks") or () if check["rule"] not in MACHINE_RULES)
    valued = [(check["rule"], "valued") for check in checks if check.get("value") is not None]
    return [(str(health.get("verdict")), ""), *findings, *valued]
