"""Operators' changes to the queue: moving a run before or after another one, and setting a priority. A move names a
neighbour, not a position, so repeating a request changes nothing. A run that has already started is not moved, and the
user gets a message. Usually only the moved run's row changes: it takes the priority of its new position."""

import time
from collections.abc import Sequence
from typing import Any

from django.db import transaction

from controlplane.platform.accounts.models import User
from runs.engine.models import Attempt, Priority, Run
from runs.engine.scheduling import dispatching, gpu_queue
from runs.engine.timeline import add_event

TURN_GAP_S = 1.0
"""Distance between the turns of neighbours when they are spread because no number is left between them."""


class NotWaiting(Exception):
    """The run has left the queue."""


def move_run(run: Run, user: User, *, before: Run | None = None, after: Run | None = None) -> bool:
    """Move a run directly before or after another one, or to the front. Return False if it was already there."""
    with transaction.atomic():
        queue = _lock_queue()
        moved, neighbour = _find(queue, run), before or after
        index, target = queue.index(moved), queue.index(_find(queue, neighbour)) if neighbour else 0
        if index == target or (before and index < target) or (after and index > target):
            return False
        _move_to(moved, queue, target, user)
    return True


def set_priority(run: Run, priority: Priority, user: User) -> bool:
    """Set a queued run's priority. Return False if it already had that priority."""
    with transaction.atomic():
        attempt = _find(_lock_queue(), run)
        previous_priority = attempt.priority
        if previous_priority == priority:
            return False
        attempt.priority = priority
        attempt.save(update_fields=["priority"])
        _record(attempt, user, "priority", {"was": previous_priority, "priority": int(priority)})
    return True


def _lock_queue() -> list[Attempt]:
    """Lock the whole queue until the end of the transaction and return it in order. Rows are locked in a fixed order,
    so that concurrent moves can't deadlock."""
    # The runs' rows are not locked, because writers of metrics may hold them.
    rows = gpu_queue.queued_attempts().select_related("run").select_for_update(of=("self",)).order_by("pk")
    return sorted(rows, key=gpu_queue.key)


def _find(queue: Sequence[Attempt], run: Run) -> Attempt:
    queued_attempt = next((attempt for attempt in queue if attempt.run_id == run.pk), None)
    if queued_attempt is None:
        raise NotWaiting(f"{run.name} has left the queue, so nothing was changed.")
    return queued_attempt


def _move_to(moved: Attempt, queue: list[Attempt], target: int, user: User) -> None:
    """Move an attempt to index `target` of the queue, and record the move."""
    index, previous_priority = queue.index(moved), moved.priority
    other_attempts = [attempt for attempt in queue if attempt is not moved]
    attempt_above = other_attempts[target - 1] if target else None
    attempt_below = other_attempts[target] if target < len(other_attempts) else None
    # It takes the priority of the last run that it passes.
    moved.priority = other_attempts[target].priority if target < index else other_attempts[target - 1].priority
    lower_bound, upper_bound = _bounds(attempt_above, attempt_below, moved.priority)
    if not lower_bound < (lower_bound + upper_bound) / 2 < upper_bound:
        _spread_turns(other_attempts, moved.priority)
        lower_bound, upper_bound = _bounds(attempt_above, attempt_below, moved.priority)
    moved.turn = (lower_bound + upper_bound) / 2
    moved.save(update_fields=["priority", "turn"])
    data = {"from": index + 1, "to": target + 1, "was": previous_priority, "priority": moved.priority}
    _record(moved, user, "queue_moved", data)


def _bounds(attempt_above: Attempt | None, attempt_below: Attempt | None, priority: int) -> tuple[float, float]:
    """Return the turns between which an attempt of this priority belongs, given its future neighbours."""
    lower_bound = attempt_above.turn if attempt_above and attempt_above.priority == priority else None
    upper_bound = attempt_below.turn if attempt_below and attempt_below.priority == priority else None
    if upper_bound is None:
        # Later submissions get later turns.
        upper_bound = max(time.time(), (lower_bound or 0.0) + TURN_GAP_S)
    return upper_bound - 2 * TURN_GAP_S if lower_bound is None else lower_bound, upper_bound


def _spread_turns(attempts: Sequence[Attempt], priority: int) -> None:
    """Spread the turns of this priority evenly, keeping the last one."""
    peers = [attempt for attempt in attempts if attempt.priority == priority]
    for distance, attempt in enumerate(reversed(peers)):
        attempt.turn = peers[-1].turn - distance * TURN_GAP_S
        attempt.save(update_fields=["turn"])


def _record(attempt: Attempt, user: User, kind: str, data: dict[str, Any]) -> None:
    add_event(attempt, kind, user.get_username(), **data)
    transaction.on_commit(dispatching.dispatch_ready, robust=True)
