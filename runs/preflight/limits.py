"""May this person queue a run, and would it start?"""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, stop, warn


def check(draft: Draft) -> Iterator[Finding]:
    owner = draft.owner
    if owner is None:
        return
    if owner.room == 0:
        has = "1 run" if owner.queued == 1 else f"{owner.queued} runs"
        yield stop(
            "",
            f"{owner.person} has {has} in the queue and may have {owner.max_queued}.",
            "Wait until one starts, remove one from the queue, or ask an admin for a higher limit.",
        )
    elif not owner.may_start:
        yield warn("", f"The run would be queued: it {owner.wait}.", "It starts by itself then.")
