"""The Hardware page's section on machines on demand."""

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import QuerySet
from django.utils import timezone

from runs.engine.machines.models import KINDS, MachineRequest, MachineSource
from runs.engine.machines.provider import EngineKind, price_of
from runs.engine.sentences import counted

SHOWN_FOR = timedelta(hours=12)
MAX_ENDED = 8
State = MachineRequest.State
CHIPS = {
    State.ASKING: "checking",
    State.WAITING: "queued",
    State.JOINED: "running",
    State.LEFT: "stopped",
    State.RELEASED: "stopped",
    State.FAILED: "bad",
    State.LOST: "bad",
}


@dataclass(frozen=True)
class SourceLine:
    row: MachineSource
    label: str
    machine: str
    """Description of each machine's resources and price."""
    count: int


@dataclass(frozen=True)
class MachineLine:
    row: MachineRequest
    chip: str
    word: str
    live: bool


@dataclass(frozen=True)
class Overview:
    kinds: list[EngineKind]
    sources: list[SourceLine]
    machines: list[MachineLine]


def overview() -> Overview:
    sources = list(MachineSource.objects.all())
    now = timezone.now()
    machines: list[MachineLine] = []
    if sources:
        live = MachineRequest.objects.filter(state__in=MachineRequest.LIVE)
        ended = MachineRequest.objects.exclude(state__in=MachineRequest.LIVE).filter(ended_at__gte=now - SHOWN_FOR)
        machines = [*lines(live), *lines(ended.order_by("-ended_at")[:MAX_ENDED])]
    source_ids_in_use = [line.row.source_id for line in machines if line.row.state in MachineRequest.LIVE]
    rows = [
        SourceLine(
            row,
            KINDS[row.kind].label if row.kind in KINDS else row.kind,
            _machine(row),
            source_ids_in_use.count(row.pk),
        )
        for row in sources
    ]
    return Overview(list(KINDS.values()), rows, machines)


def lines(rows: QuerySet[MachineRequest]) -> list[MachineLine]:
    return [line(row) for row in rows.select_related("source", "attempt__run")]


def line(row: MachineRequest) -> MachineLine:
    is_joined = row.state == State.JOINED
    state_word = str(row.get_state_display())
    if row.state == State.WAITING and row.phase:
        state_word = row.phase
    elif is_joined and row.released_at:
        state_word = "leaving"
    return MachineLine(row, CHIPS[State(row.state)], state_word, row.state in MachineRequest.LIVE)


def _machine(row: MachineSource) -> str:
    memory = f" with {row.gpu_memory_gib} GiB" if row.gpu_memory_gib else ""
    kind = f"{row.gpu_kind} " if row.gpu_kind else ""
    gpus = f"{row.gpus} {kind}GPU{'' if row.gpus == 1 else 's'}{memory}" if row.gpus else "no GPU"
    price_note = "" if price_of(row.options) else " (list price)"
    price = f", {row.gpu_hour * row.gpus} per hour{price_note}" if row.gpu_hour else ""
    return f"{gpus}, {counted(row.cpus, 'core')}{price}"
