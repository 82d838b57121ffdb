"""Looks at the runs that train, or have just ended: the assessment into the run, what opens and closes into events."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import OuterRef, Prefetch, Q, Subquery

from controlplane.http import outage
from runs import hints
from runs.alerts import delivery
from runs.health import history as past
from runs.health.assess import MACHINE, Finding, alerts, assess
from runs.health.presets import Preset, Presets
from runs.health.reading import read
from runs.models import Attempt, Run, RunEvent
from runs.states import RunStatus
from workers.contract import ContractError

log = logging.getLogger(__name__)

ACTOR = "health"
ALERT = "alert"
EVERY = timedelta(seconds=10)
"""Between two assessments of one run."""
TOLD_EVERY = timedelta(seconds=30)
"""After which its watchers get new values though it says the same of the same figures."""
BUDGET_S = 1.0
"""Of one round; whoever is left comes first in the next."""
ENDED_FOR = timedelta(minutes=10)
"""Lines of a run that has ended may still come: it is looked at for so long."""


def tick(now: datetime) -> int:
    """One round; answers how many runs were assessed."""
    presets: Presets | None = None
    until = time.monotonic() + BUDGET_S
    done = 0
    for run_id in _due(now):
        if time.monotonic() > until:
            break
        presets = presets or Presets()
        try:
            # One at a time: a run's spec and what health remembers of it are long, and the round may end before it.
            run = Run.objects.prefetch_related(_attempts()).get(pk=run_id)
            done += look_at(run, presets.of(run), now)
        except Exception as error:  # a loop's border: one run whose numbers can't be judged must not hide the others
            if outage.is_away(error):
                raise
            log.exception("the health of run %s can't be told", run_id)
    return done


def look_at(run: Run, preset: Preset, now: datetime, *, tell: bool = True) -> bool:
    """Assess one run and store it. False: there is nothing to read, or another tick was first. `tell`: what opens and
    closes becomes events, of which people are told."""
    attempt = run.latest()
    memory = run.health.get("memory") or {}
    try:
        history = read(run, attempt, memory)
    except ContractError:
        return False  # the run's page says so
    moved_at = _moved_at(run, memory, history.step, now)
    if attempt.status == RunStatus.RUNNING and attempt.last_seen_at is not None:
        # Up to the supervisor's last word: what nobody could tell us of, its silence or our own, is no standstill.
        history.quiet_s = max(0.0, (min(now, attempt.last_seen_at) - moved_at).total_seconds())
    health = assess(history, preset, run.health, now)
    health["memory"] = {
        **past.to_memory(history),
        "attempt": attempt.number,
        "seq": run.last_seq,
        "step": history.step,
        "moved_at": moved_at.isoformat(),
    }
    return _store(run, attempt, health, now, tell=tell)


def _due(now: datetime) -> list[str]:
    """Runs that train, or ended a short while ago, with news since they were looked at; the longest ago first."""
    going = Q(status__in=(RunStatus.RUNNING, RunStatus.STOPPING)) | Q(ended_at__gte=now - ENDED_FOR)
    current = Attempt.objects.filter(going, started_at__isnull=False).values("run_id")
    newest = Attempt.objects.filter(run=OuterRef("pk")).order_by("-number").values("status")[:1]
    runs = Run.objects.filter(pk__in=current, kind="train").order_by("pk")
    told = runs.values_list("pk", "last_seq", "health__at", "health__memory__seq", Subquery(newest))
    due = [(str(at or ""), pk) for pk, last, at, seen, status in told if _is_due(last, at, seen or 0, status, now)]
    return [pk for _, pk in sorted(due)]


def _is_due(last_seq: int, at: str | None, seen: int, status: str, now: datetime) -> bool:
    if at is None:
        return True
    age = now - datetime.fromisoformat(at)
    news = status == RunStatus.RUNNING or last_seq > seen  # the silence of one that runs is news, too
    return news and not timedelta(0) <= age < EVERY


def _attempts() -> Prefetch[Any]:
    return Prefetch("attempts", Attempt.objects.order_by("number"))


def _moved_at(run: Run, memory: Mapping[str, Any], step: int, now: datetime) -> datetime:
    """When the step was first seen to be this one, by our own clock."""
    attempt = run.latest()
    if memory.get("step") == step and memory.get("attempt") == attempt.number and memory.get("moved_at"):
        return min(now, datetime.fromisoformat(memory["moved_at"]))
    return now


def _store(run: Run, attempt: Attempt, health: dict[str, Any], now: datetime, *, tell: bool) -> bool:
    with transaction.atomic():
        # Whoever writes events holds the attempt's row, so that their ids are in the order of commit.
        Attempt.objects.select_for_update().only("pk").get(pk=attempt.pk)
        before: dict[str, Any] = Run.objects.values_list("health", flat=True).get(pk=run.pk)
        if before.get("at") != run.health.get("at"):
            return False
        telling = _shown(before) != _shown(health) or _is_old(before.get("told_at"), now)
        health["told_at"] = now.isoformat() if telling else before["told_at"]
        Run.objects.filter(pk=run.pk).update(health=health)
        written = list(_events(attempt, alerts(before), alerts(health), health["step"], now)) if tell else []
        if written or telling:
            transaction.on_commit(lambda: hints.changed(run.pk))
    run.health = health
    return True


def _events(
    attempt: Attempt, before: Mapping[str, Finding], after: Mapping[str, Finding], step: int, now: datetime
) -> Iterable[RunEvent]:
    for rule, finding in after.items():
        known = before.get(rule)
        if known is None or (known["level"], finding["level"]) == ("watch", "bad"):
            event = _event(attempt, finding, "open", step, now)
            delivery.notify(event)
            yield event
    for rule, finding in before.items():
        if rule not in after:
            yield _event(attempt, finding, "closed", step, now)


def _event(attempt: Attempt, finding: Finding, state: str, step: int, now: datetime) -> RunEvent:
    told = {name: finding[name] for name in ("rule", "level", "title", "value", "bound", "sentence")}
    return RunEvent.objects.create(
        run_id=attempt.run_id,
        attempt=attempt,
        at=now,
        kind=ALERT,
        step=step,
        actor=ACTOR,
        data={**told, "state": state, "step": step},
    )


def _is_old(told_at: str | None, now: datetime) -> bool:
    """Pages with the same verdict still show values and the step they are of: those follow at a slower pace."""
    return told_at is None or not timedelta(0) <= now - datetime.fromisoformat(told_at) < TOLD_EVERY


def _shown(health: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What watchers are told of at once. A figure's first value is, too: else a run's page would go on saying what the
    first few steps said, when most figures have none. The machine's come and go with its samples."""
    findings = [(finding["rule"], finding["level"]) for finding in health.get("findings") or ()]
    checks = (check for check in health.get("checks") or () if check["rule"] not in MACHINE)
    valued = [(check["rule"], "valued") for check in checks if check.get("value") is not None]
    return [(str(health.get("verdict")), ""), *findings, *valued]
