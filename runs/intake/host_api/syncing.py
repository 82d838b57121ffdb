"""What a sync says, and its answer: the acknowledged line, a stop, whether anybody watches, and when to come back."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from django.conf import settings

from runs.engine.states import FINAL
from workers.contract.reports.lines import LONGEST_PAUSE_S, OutboxLine
from workers.contract.wire.names import StopMode


class SyncBody(msgspec.Struct):
    lines: list[OutboxLine]
    seen: bool = True
    """False if a reaper sends the lines: they aren't a sign of life."""
    turns_after: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Of a served model: the last turn of its chat that its supervisor has. A warm server, which has none, asks in the
    same way who uses it."""
    paced: bool = False
    """The supervisor follows `again_s`. One of an earlier version, which outlives an update of the control plane,
    refuses answers with what it doesn't know."""


def answer(ack: int, *, status: str, stop_mode: str, watched: bool, paced: bool, late: bool = False) -> dict[str, Any]:
    """`late`: lines wait here to be stored, so an unwatched run had better come back later."""
    # An attempt that was given up (`host_lost`) while its supervisor lived on must stop training.
    stop = StopMode.NOW.value if status in FINAL else stop_mode or None
    said: dict[str, Any] = {"ack": ack, "stop": stop, "watched": watched}
    if paced and not watched:
        said["again_s"] = max(LONGEST_PAUSE_S, settings.UNWATCHED_S) if late else settings.UNWATCHED_S
    return said
