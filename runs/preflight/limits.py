"""May this person queue a run, and would it start?"""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, stop, warn
from runs.scheduling.limits import TO_MAKE_ROOM


def check(draft: Draft) -> Iterator[Finding]:
    owner = draft.owner
    if owner is None:
        return
    if owner.room == 0:
        yield stop("", f"{owner.queue}.", TO_MAKE_ROOM)
    elif not owner.may_start:
        yield warn("", f"The run would be queued: it {owner.wait}.", "It starts by itself then.")
