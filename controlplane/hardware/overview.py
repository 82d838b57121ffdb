"""The Hardware page's answer in one line, and its queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.hardware.hosts import HostView
from runs.models import Attempt
from runs.states import RunStatus

HELD_BY = "held by "


@dataclass(frozen=True)
class Part:
    words: str
    grade: str = ""


@dataclass(frozen=True)
class Verdict:
    grade: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Waiting:
    """One line of the queue."""

    attempt: Attempt
    place: int
    waits_for: str
    holder: tuple[str, str] | None
    """(run id, name) of the run that has what is waited for, cut off `waits_for`."""


def verdict(hosts: Sequence[HostView], queued: int) -> Verdict:
    """What the machines are doing, the worst of it last and coloured."""
    gpus = [gpu for host in hosts for gpu in host.gpus]
    held = sum(1 for gpu in gpus if gpu.holder and not gpu.holder.quarantined)
    now = [gpu for host in hosts if host.fresh for gpu in host.gpus]
    free = sum(1 for gpu in now if gpu.holder is None and not gpu.busy)
    slots = [slot for host in hosts for slot in host.slots]
    taken = sum(1 for slot in slots if slot.holder)
    parts = [
        Part(f"{held} of {_count(len(gpus), 'GPU')} held, {free} free")
        if gpus
        else Part(f"No GPU: runs train on the CPU, {taken} of {_count(len(slots), 'slot')} held"),
        Part(f"{queued} queued", "muted"),
    ]
    away = sum(1 for host in hosts if not host.fresh)
    troubles = [
        (sum(len(host.quarantined) for host in hosts), "resource", "in quarantine"),
        (sum(1 for gpu in now if gpu.holder is None and gpu.busy), "GPU", "in use by something else"),
        (sum(1 for host in hosts if host.fresh and host.gpu_error), "host", "with silent GPUs"),
        (away, "host", "out of reach"),
    ]
    parts += [Part(f"{_count(number, word)} {state}", "warn") for number, word, state in troubles if number]
    if hosts and away == len(hosts):
        return Verdict("bad", (Part("No host is in reach: nothing can start.", "bad"), *parts[:-1]))
    return Verdict("warn" if any(number for number, _, _ in troubles) else "good", tuple(parts))


def queue(hosts: Sequence[HostView]) -> list[Waiting]:
    """In the order in which they are started, each with what it waits for."""
    waiting = Attempt.objects.filter(status=RunStatus.QUEUED).select_related("run", "run__owner", "run__host")
    names = {holder.run_name: holder.run_id for host in hosts for holder in host.holders}
    return [
        _waiting(attempt, place, names)
        for place, attempt in enumerate(waiting.order_by("-priority", "created_at", "pk"), start=1)
    ]


def _waiting(attempt: Attempt, place: int, names: dict[str, str]) -> Waiting:
    text = attempt.waits_for or "its turn"
    before, found, name = text.rpartition(HELD_BY)
    run_id = names.get(name)
    if found and run_id:
        return Waiting(attempt, place, before + HELD_BY, (run_id, name))
    return Waiting(attempt, place, text, None)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
