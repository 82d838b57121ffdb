"""The Hardware page's summary line and queue."""

from collections.abc import Sequence
from dataclasses import dataclass

from runs.engine import sentences
from runs.engine.hosts.view import HostView
from runs.engine.models import Attempt, Priority
from runs.engine.scheduling import gpu_queue
from runs.engine.sentences import Waiting, counted

PRIORITIES = [(priority.value, priority.label) for priority in reversed(Priority)]
"""Each priority's (value, label), highest first."""


@dataclass(frozen=True)
class VerdictPart:
    text: str
    grade: str = ""


@dataclass(frozen=True)
class HostVerdict:
    grade: str
    parts: tuple[VerdictPart, ...]

    @property
    def icon(self) -> str:
        return "circle-check" if self.grade == "good" else "triangle-alert"


@dataclass(frozen=True)
class QueueLine:
    attempt: Attempt
    position: int
    waits: Waiting
    above: str
    """The id of the run ahead of it, or "" for the first."""
    below: str
    """The id of the run behind it, or "" for the last."""

    @property
    def priority(self) -> str:
        return str(dict(PRIORITIES).get(self.attempt.priority, self.attempt.priority))


def verdict(hosts: Sequence[HostView], queued: int) -> HostVerdict:
    """Summarise the state of the hosts. Problems come last and are coloured."""
    gpus = [gpu for host in hosts for gpu in host.gpus]
    gpus_in_use = sum(1 for gpu in gpus if gpu.holder and not gpu.holder.quarantined)
    reachable_gpus = [gpu for host in hosts if host.fresh for gpu in host.gpus]
    free_gpus = sum(host.free_gpus for host in hosts if host.fresh)
    slots = [slot for host in hosts for slot in host.slots]
    slots_in_use = sum(1 for slot in slots if slot.holder)
    parts = [
        VerdictPart(f"{gpus_in_use} of {counted(len(gpus), 'GPU')} held, {free_gpus} free")
        if gpus
        else VerdictPart(f"No GPU: runs train on the CPU, {slots_in_use} of {counted(len(slots), 'slot')} held"),
        VerdictPart(f"{queued} queued", "muted"),
    ]
    unreachable_count = sum(1 for host in hosts if not host.fresh)
    problems = [
        (sum(len(host.quarantined) for host in hosts), "resource", "in quarantine"),
        (sum(1 for gpu in reachable_gpus if gpu.holder is None and gpu.busy), "GPU", "in use by another program"),
        (sum(1 for host in hosts if host.fresh and host.gpu_error), "host", "with unreadable GPUs"),
        (unreachable_count, "host", "unreachable"),
    ]
    parts += [VerdictPart(f"{counted(number, noun)} {state}", "warn") for number, noun, state in problems if number]
    if hosts and unreachable_count == len(hosts):
        return HostVerdict("bad", (VerdictPart("No host is reachable, so nothing can start.", "bad"), *parts[:-1]))
    return HostVerdict("warn" if any(number for number, _, _ in problems) else "good", tuple(parts))


def queue() -> list[QueueLine]:
    """List the queued attempts in the order of the queue, each with what it is waiting for."""
    rows = list(
        gpu_queue.queued_attempts().select_related("run__owner", "run__host", "host", "machine", "waits_on__owner")
    )
    runs = ["", *(row.run_id for row in rows), ""]
    return [
        QueueLine(row, index, sentences.waiting(row) or Waiting("its turn"), runs[index - 1], runs[index + 1])
        for index, row in enumerate(rows, start=1)
    ]
