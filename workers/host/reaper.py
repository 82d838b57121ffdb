"""The reap: after silence, check whether the supervisor lives; if not, clean up after it and prove it.

The lock comes first: while it is held, nothing is touched. Processes to kill are identified by pid *and* start time
within the same boot, or by their working directory in the attempt's folder, even a removed one; never by name, and
never by a pid that may be reused.

An attempt is reaped because it was claimed, so a missing or empty folder proves nothing: processes are searched, and
GPUs and ports are proved free, whatever the folder says.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from workers.contract.reports.lines import Line, Receipt, event_line, numbered
from workers.contract.run.spec import AttemptSpec, Placement
from workers.contract.wire.documents import ContractError, from_dict, to_dict, to_json
from workers.contract.wire.names import TRAINER_KINDS, EventKind, FileName
from workers.diagnosis.folder import facts_of
from workers.settings import HostSettings
from workers.supervisor.diagnosing import UNDIAGNOSED, WAIT_S, diagnosed
from workers.supervisor.processes import gpus, procfs
from workers.supervisor.processes.folder import AttemptFolder, Lock
from workers.supervisor.processes.gpus import GpuReading
from workers.supervisor.processes.loops import BackgroundCall
from workers.supervisor.processes.procfs import Process
from workers.supervisor.processes.teardown import Teardown
from workers.supervisor.reports.control import Control, ControlError, Refused
from workers.supervisor.reports.logs import LogUploader
from workers.supervisor.reports.outbox import Outbox, line_of
from workers.supervisor.reports.samples import SampleUploader
from workers.supervisor.reports.sync import deliver
from workers.supervisor.reports.tail import Tail
from workers.supervisor.reports.trainerlines import lines_left_out, trainer_line

log = logging.getLogger(__name__)

LINES_WITH_THE_REPORT = 1000
"""Remaining outbox lines up to this number are sent in the report itself; earlier ones go ahead in sync requests."""

LOST = "A line was lost on the host's disk."
LOST_LINES = 1000
"""A larger gap wasn't caused by a disk that lost lines."""

FILES_DEADLINE_S = 60.0
_REMOVED = " (deleted)"
"""The kernel's suffix for a deleted working directory."""


def reap(
    run_id: str,
    number: int,
    token: str,
    settings: HostSettings,
    placement: Mapping[str, Any] | None = None,
    *,
    read_gpus: Callable[[], list[GpuReading]] = gpus.read,
) -> bool:
    """True if the attempt's remains were cleaned up; False while its lock is held."""
    folder = AttemptFolder.of(settings.runs_dir, run_id, number)
    control = Control.of(settings, token, alive=False)
    lock = Lock(folder)
    try:
        report = _Report(f"{run_id}-{number}", control)
        if not lock.acquire():
            report.send(lock_held=True, detail="The supervisor is alive.")
            return False
        _clean_up(folder, settings, read_gpus, report, from_dict(Placement, placement) if placement else None)
        return True
    finally:
        lock.release()
        control.close()


def leftovers(folder: AttemptFolder) -> list[Process]:
    """The processes of an attempt without a supervisor, and their descendants."""
    rows = procfs.table()
    recorded = folder.recorded()
    path = os.path.realpath(folder.path)
    own_pids = _ourselves(rows)
    roots = [row for row in rows if row.pid not in own_pids and (row.identity in recorded or _works_in(row, path))]
    below = procfs.descendants([row.pid for row in roots], rows)
    return [*roots, *(row for row in below if row.pid not in own_pids)]


class _Report:
    def __init__(self, attempt_id: str, control: Control) -> None:
        self.attempt_id = attempt_id
        self.control = control

    def send(
        self,
        *,
        detail: str,
        lock_held: bool = False,
        receipt: Receipt | None = None,
        lines: Sequence[Line] = (),
    ) -> None:
        body = {
            "lock_held": lock_held,
            "receipt": to_dict(receipt) if receipt else None,
            "detail": detail,
            "boot_id": procfs.boot_id(),
        }
        try:
            self.control.send_reaped(self.attempt_id, body, [line.text for line in lines])
        except Refused:
            if not lines:
                raise
            # The control plane refuses one of the lines.
            deliver(self.control, self.attempt_id, lines)
            self.control.send_reaped(self.attempt_id, body, [])


def _clean_up(
    folder: AttemptFolder,
    settings: HostSettings,
    read_gpus: Callable[[], list[GpuReading]],
    report: _Report,
    placement: Placement | None,
) -> None:
    spec = _spec(folder)
    placement = placement or (spec.placement if spec else None)
    receipt = _tear_down(folder, placement, settings, read_gpus)
    folder.remove_unfinished()
    if spec is None or not folder.was_started():
        report.send(receipt=receipt, detail=_without_lines(folder, placement, receipt))
    else:
        receipt = _first_receipt(folder, receipt)
        folder.write_if_possible(FileName.REAPED, to_json(receipt))
        lines, trouble = _lines_left(folder, spec, report)
        report.send(receipt=receipt, lines=lines, detail=f"{_sentence(receipt)} {trouble}".strip())
    _hand_over_files(folder, settings, report)


def _lines_left(folder: AttemptFolder, spec: AttemptSpec, report: _Report) -> tuple[list[Line], str]:
    """The remaining lines, and what kept some back: no fault in them may withhold the receipt, and with it the GPUs."""
    trouble = ""
    try:
        with closing(Outbox(folder / FileName.OUTBOX, first_seq=spec.first_seq)) as outbox:
            acked = _acked(folder, outbox, report)
            try:
                if not folder.has_ended_line():
                    trouble = _recover_metrics(folder, outbox, acked)
                    _diagnose(folder, outbox)
            except OSError as error:
                trouble = f"What the trainer wrote last could not be read: {error}."
            return _hand_over(outbox, report, acked), trouble
    except ControlError:
        raise  # it could not be sent now either: the next reap retries
    except Exception as error:
        log.exception("the lines of %s can't be handed over", folder.path)
        return [], f"The lines it left could not be handed over: {type(error).__name__}: {error}."[:500]


def _first_receipt(folder: AttemptFolder, receipt: Receipt) -> Receipt:
    """A repeated reap, after a lost report, finds nothing: the first receipt has the figures."""
    earlier = folder.read_json(FileName.REAPED)
    try:
        first = from_dict(Receipt, earlier) if earlier else receipt
    except ContractError:
        return receipt
    return first if first.free and receipt.free else receipt


def _tear_down(
    folder: AttemptFolder,
    placement: Placement | None,
    settings: HostSettings,
    read_gpus: Callable[[], list[GpuReading]],
) -> Receipt:
    teardown = Teardown(
        lambda: leftovers(folder),
        settings,
        now=time.monotonic(),
        baselines=_baselines(folder, placement) if placement else {},
        peaks={},
        ports=placement.every_port if placement else (),
        read_gpus=read_gpus,
        is_orphan=lambda process: True,  # all of them: their supervisor is gone
    )
    while (receipt := teardown.tick(time.monotonic())) is None:
        time.sleep(settings.tick_watched_s)
    # Unknown resources can't be proved free.
    return receipt if placement else dataclasses.replace(receipt, free=False)


def _baselines(folder: AttemptFolder, placement: Placement) -> dict[int, int]:
    """The baseline of each leased GPU: 0 if none was recorded; {} if no process was started, since the usage isn't the
    attempt's."""
    if _started_nothing(folder):
        return {}
    recorded = (folder.read_json(FileName.PIDS) or {}).get("baselines")
    baselines = {int(gpu): int(mib) for gpu, mib in recorded.items()} if isinstance(recorded, dict) else {}
    return {gpu: baselines.get(gpu, 0) for gpu in placement.every_gpu}


def _started_nothing(folder: AttemptFolder) -> bool:
    """Whether a supervisor was here but started nothing: before its first child it would have written pids.json and
    opened the child's log."""
    logs = {path.name for path in (folder / FileName.LOGS).glob("*.log")}
    return (
        folder.was_started() and not os.path.lexists(folder / FileName.PIDS) and logs == {folder.log("supervisor").name}
    )


def _recover_metrics(folder: AttemptFolder, outbox: Outbox, acked: int) -> str:
    """Store the lines that the supervisor hadn't read when it died; return a note about broken ones.

    The trainer's lines are in the outbox in order, so they are counted; timestamps won't do, since clocks change. If
    the control plane has more lines than the disk (sent from memory while it was full, or lost with the host's power),
    as many of the trainer's lines may be among them: none is stored twice, so those are skipped.
    """
    known = outbox.count(TRAINER_KINDS) + outbox.skip_to(acked)
    tail = Tail(folder / FileName.METRICS, trainer_line)
    while True:
        lines = tail.read()
        for line in lines[known:]:
            outbox.add(line.text)
        known = max(0, known - len(lines))
        if tail.at_end():
            break
    tail.close()
    if tail.trouble is not None:
        raise tail.trouble
    return lines_left_out(tail.bad_lines) if tail.bad_lines else ""


def _diagnose(folder: AttemptFolder, outbox: Outbox) -> None:
    """Once, and not of an attempt that was asked to end."""
    if outbox.count({EventKind.DIAGNOSED}) or facts_of(folder.path).reason in UNDIAGNOSED:
        return
    call = BackgroundCall("diagnosis", lambda: diagnosed(folder.path))
    data = call.value() if call.wait(WAIT_S) else None
    if data is not None:
        outbox.add(event_line(EventKind.DIAGNOSED, data, t=time.time()))


def _hand_over(outbox: Outbox, report: _Report, acked: int) -> list[Line]:
    """The lines that the control plane has not confirmed; all but the last ones are sent ahead."""
    offset = outbox.offset_after(acked)
    waiting: list[Line] = []
    while True:
        lines, after = outbox.read_after(offset, max_bytes=1 << 20)
        fresh = _without_gaps([line for line in lines if line.seq > acked], acked)
        waiting += fresh
        if after == offset:
            return waiting
        # Lines that a full disk keeps in memory follow each reading that comes to the file's end.
        offset, acked = after, fresh[-1].seq if fresh else acked
        if len(waiting) > LINES_WITH_THE_REPORT:
            deliver(report.control, report.attempt_id, waiting)
            waiting = []


def _without_gaps(lines: list[Line], acked: int) -> list[Line]:
    """A line that the disk lost is stood in for: the control plane takes none that comes after a gap."""
    whole: list[Line] = []
    for line in lines:
        for seq in range(acked + 1, min(line.seq, acked + 1 + LOST_LINES)):
            note = event_line(EventKind.NOTE, {"text": LOST, "level": "warning"}, t=line.t)
            whole += filter(None, [line_of(numbered(note, seq))])
        whole.append(line)
        acked = line.seq
    return whole


def _hand_over_files(folder: AttemptFolder, settings: HostSettings, report: _Report) -> None:
    """Upload completions and logs within the deadline; the control plane skips what it has."""
    samples = SampleUploader(report.attempt_id, folder / FileName.SAMPLES, report.control, settings, hold=_never)
    logs = LogUploader(report.attempt_id, folder, report.control, settings, watched=_never, hold=_never)
    samples.close()
    logs.close()
    deadline = time.monotonic() + FILES_DEADLINE_S
    while time.monotonic() < deadline and not (logs.drained and (samples.drained or samples.refused)):
        wait = min(samples.tick(time.monotonic()), logs.tick(time.monotonic()))
        time.sleep(min(wait, 0.5))
    samples.release()
    logs.release()


def _never() -> bool:
    return False


def _acked(folder: AttemptFolder, outbox: Outbox, report: _Report) -> int:
    """The control plane's own acknowledged seq: the file may be outdated if the disk was full."""
    try:
        return max(outbox.first_seq - 1, report.control.sync(report.attempt_id, []).ack)
    except Refused:
        pass  # it doesn't know the attempt: the report will get the same answer
    try:
        return int((folder / FileName.ACK).read_text())
    except (OSError, ValueError):
        return outbox.first_seq - 1


def _works_in(row: Process, path: str) -> bool:
    """Processes with a terminal belong to people, who may have a shell in this folder. Other users' processes don't
    count either."""
    where = procfs.working_directory(row.pid) if row.tty == 0 else None
    if where is None:
        return False
    if where.endswith(_REMOVED) and not os.path.exists(where):  # a folder may really have this name
        where = where.removesuffix(_REMOVED)
    return Path(where).is_relative_to(path) and procfs.user(row.pid) in _ours(path)


def _ours(path: str) -> set[int]:
    """The users that the attempt's processes run as: the folder's owner, and the current user."""
    try:
        return {os.stat(path).st_uid, os.getuid()}
    except OSError:
        return {os.getuid()}


def _ourselves(rows: list[Process]) -> set[int]:
    """This process and its ancestors."""
    parents = {row.pid: row.ppid for row in rows}
    lineage, pid = set(), os.getpid()
    while pid > 0 and pid not in lineage:
        lineage.add(pid)
        pid = parents.get(pid, 0)
    return lineage


def _spec(folder: AttemptFolder) -> AttemptSpec | None:
    try:
        return folder.read_spec()
    except (OSError, ContractError, ValueError):
        return None


def _without_lines(folder: AttemptFolder, placement: Placement | None, receipt: Receipt) -> str:
    exists = os.path.isdir(folder.path)  # a failing file system is not an error here
    situation = "The attempt's folder holds no line" if exists else "The host has no folder of this attempt"
    if placement is None:
        return f"{situation}, and which GPUs it had is not known here, so none is proved free."
    return f"{situation}. {_sentence(receipt)}"


def _sentence(receipt: Receipt) -> str:
    if receipt.survivors:
        return f"The supervisor was gone. {_processes(len(receipt.survivors))} could not be ended."
    ended = receipt.processes_ended
    return f"The supervisor was gone. {_processes(ended)} of the run {'was' if ended == 1 else 'were'} ended."


def _processes(count: int) -> str:
    return f"{count} process{'es' * (count != 1)}"
