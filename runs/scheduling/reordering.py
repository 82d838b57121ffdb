"""A person changes the queue: puts a run before or after another one, or gives it a priority.

Said by what it shall stand beside, not by a number of places: sent twice, or by two people, it is done once. A run that
has started meanwhile is left alone, and the person told so. Only the row of the run that is moved changes: it takes on
the priority of where it is put.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from controlplane.accounts.models import User
from runs import hints
from runs.models import Attempt, Priority, Run, RunEvent
from runs.scheduling import launching, queueing

APART_S = 1.0
"""Between two turns, once there is no number left between them."""


class NotWaiting(Exception):
    """A run has left the queue."""


def put_first(run: Run, user: User) -> bool:
    """False: it was the first already."""
    with transaction.atomic():
        line = _locked()
        return _put(_find(line, run), line, 0, user)


def put_before(run: Run, other: Run, user: User) -> bool:
    """Directly before another one. False: it was before that one already."""
    with transaction.atomic():
        line = _locked()
        mine, beside = _find(line, run), _find(line, other)
        return line.index(mine) > line.index(beside) and _put(mine, line, line.index(beside), user)


def put_after(run: Run, other: Run, user: User) -> bool:
    """Directly after another one. False: it was after that one already."""
    with transaction.atomic():
        line = _locked()
        mine, beside = _find(line, run), _find(line, other)
        return line.index(mine) < line.index(beside) and _put(mine, line, line.index(beside), user)


def set_priority(run: Run, priority: Priority, user: User) -> bool:
    """False: it had that priority already."""
    with transaction.atomic():
        mine = _find(_locked(), run)
        was = mine.priority
        if was == priority:
            return False
        mine.priority = priority
        mine.save(update_fields=["priority"])
        _note(mine, user, "priority", {"was": was, "priority": int(priority)})
    return True


def _locked() -> list[Attempt]:
    """The whole queue, held until the end of the transaction. Locked in an order that nobody changes: two people who
    move runs at once must not wait for each other."""
    # Without the run's own row, which a writer of its figures may have.
    rows = queueing.waiting().select_related("run").select_for_update(of=("self",)).order_by("pk")
    return sorted(rows, key=queueing.key)


def _find(line: Sequence[Attempt], run: Run) -> Attempt:
    found = next((attempt for attempt in line if attempt.run_id == run.pk), None)
    if found is None:
        raise NotWaiting(f"{run.name} has left the queue meanwhile, so nothing was moved.")
    return found


def _put(mine: Attempt, line: list[Attempt], to: int, user: User) -> bool:
    """At this place of the line, which it is part of."""
    at, was = line.index(mine), mine.priority
    if at == to:
        return False
    others = [attempt for attempt in line if attempt is not mine]
    above = others[to - 1] if to else None
    below = others[to] if to < len(others) else None
    # Up: beside the one it passes, which is below it then. Down: the other way round.
    mine.priority = others[to].priority if to < at else others[to - 1].priority
    lower, upper = _bounds(above, below, mine.priority)
    if not lower < (lower + upper) / 2 < upper:
        _space(others, mine.priority)
        lower, upper = _bounds(above, below, mine.priority)
    mine.turn = (lower + upper) / 2
    mine.save(update_fields=["priority", "turn"])
    data = {"from": at + 1, "to": to + 1, "was": was, "priority": mine.priority}
    _note(mine, user, "queue_moved", data)
    return True


def _bounds(above: Attempt | None, below: Attempt | None, priority: int) -> tuple[float, float]:
    """The turns of its neighbours, as far as they have this priority."""
    lower = above.turn if above and above.priority == priority else None
    upper = below.turn if below and below.priority == priority else None
    if upper is None:
        # Whoever is queued from now on comes later.
        upper = max(time.time(), (lower or 0.0) + APART_S)
    return upper - 2 * APART_S if lower is None else lower, upper


def _space(others: Sequence[Attempt], priority: int) -> None:
    """Set the turns of this priority apart from each other; the last one keeps its own."""
    equals = [attempt for attempt in others if attempt.priority == priority]
    for back, attempt in enumerate(reversed(equals)):
        attempt.turn = equals[-1].turn - back * APART_S
        attempt.save(update_fields=["turn"])


def _note(attempt: Attempt, user: User, kind: str, data: dict[str, Any]) -> None:
    RunEvent.objects.create(
        run_id=attempt.run_id, attempt=attempt, at=timezone.now(), kind=kind, actor=user.get_username(), data=data
    )
    transaction.on_commit(lambda: hints.changed(attempt.run_id), robust=True)
    transaction.on_commit(launching.dispatch_ready, robust=True)
