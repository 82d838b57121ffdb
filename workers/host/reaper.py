"""The reaper, which cleans up after a supervisor that is no longer alive, and proves that nothing is left.

It acquires the lock first; while another process holds it, nothing is touched. Processes to kill are identified by pid
*and* start time within the same boot, or by a working directory in the attempt's folder, even a removed one; never by
name, and never by a pid that may have been reused.

An attempt is reaped because it was claimed, so a missing or empty folder proves nothing: the reaper always searches for
processes and proves that GPUs and ports are free.
"""

import dataclasses
import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from workers.contract.reports.lines import Line, Receipt, event_line, numbered
from workers.contract.run.spec import AttemptSpec, Placement
from workers.contract.wire.documents import ContractError, from_dict, to_dict, to_json
from workers.contract.wire.names import TRAINER_KINDS, EventKind, FileName
from workers.diagnosis.folder import facts_of
from workers.settings import HostSettings
from workers.supervisor.end_reasons import DIAGNOSIS_WAIT_S, UNDIAGNOSED, diagnosis_of
from workers.supervisor.processes import gpus, procfs
from workers.supervisor.processes.folder import AttemptFolder, Lock
from workers.supervisor.processes.gpus import ReadGpus
from workers.supervisor.processes.loops import BackgroundCall
from workers.supervisor.processes.procfs import Process
from workers.supervisor.processes.teardown import Teardown
from workers.supervisor.reports.control import Control, ControlError, ControlRefused
from workers.supervisor.reports.logs import LogUploader
from workers.supervisor.reports.outbox import Outbox, line_of
from workers.supervisor.reports.samples import SampleUploader
from workers.supervisor.reports.sync import deliver
from workers.supervisor.reports.tail import Tail
from workers.supervisor.reports.trainerlines import dropped_lines_note, trainer_line

log = logging.getLogger(__name__)

MAX_LINES_IN_REPORT = 1000
"""Maximum number of outbox lines sent in the report itself; earlier lines are sent ahead in sync requests."""

LOST = "A line was lost on the host's disk."
MAX_LOST_LINES = 1000
"""Maximum number of lines in a gap that a disk may have caused by losing lines."""

FILES_DEADLINE_S = 60.0
_REMOVED = " (deleted)"
"""Suffix that the kernel adds to a deleted working directory."""


def reap(
    run_id: str,
    number: int,
    token: str,
    settings: HostSettings,
    placement: Mapping[str, Any] | None = None,
    *,
    read_gpus: ReadGpus = gpus.read,
) -> bool:
    """Clean up what is left of an attempt, and report to the control plane. Return False without cleaning up if the
    attempt's lock is held."""
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
    """Find the remaining processes of an attempt whose supervisor is gone, and their descendants."""
    rows = procfs.table()
    recorded = folder.recorded()
    path = os.path.realpath(folder.path)
    own_pids = _own_lineage(rows)
    roots = [row for row in rows if row.pid not in own_pids and (row.identity in recorded or _is_working_in(row, path))]
    descendants = procfs.descendants([row.pid for row in roots], rows)
    return [*roots, *(row for row in descendants if row.pid not in own_pids)]


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
        except ControlRefused:
            if not lines:
                raise
            # The control plane refuses one of the lines.
            deliver(self.control, self.attempt_id, lines)
            self.control.send_reaped(self.attempt_id, body, [])


def _clean_up(
    folder: AttemptFolder,
    settings: HostSettings,
    read_gpus: ReadGpus,
    report: _Report,
    placement: Placement | None,
) -> None:
    spec: AttemptSpec | None = None
    with suppress(OSError, ContractError, ValueError):
        spec = folder.read_spec()
    placement = placement or (spec.placement if spec else None)
    receipt = _tear_down(folder, placement, settings, read_gpus)
    folder.remove_unfinished()
    if spec is None or not folder.was_started():
        report.send(receipt=receipt, detail=_detail_without_lines(folder, placement, receipt))
    else:
        receipt = _first_receipt(folder, receipt)
        folder.write_if_possible(FileName.REAPED, to_json(receipt))
        lines, problem = _remaining_lines(folder, spec, report)
        report.send(receipt=receipt, lines=lines, detail=f"{_sentence(receipt)} {problem}".strip())
    _hand_over_files(folder, settings, report)


def _remaining_lines(folder: AttemptFolder, spec: AttemptSpec, report: _Report) -> tuple[list[Line], str]:
    """Return the lines that are not confirmed yet, and why others are missing. No error in the lines may hold back the
    receipt, without which the GPUs stay reserved."""
    problem = ""
    try:
        with closing(Outbox(folder / FileName.OUTBOX, first_seq=spec.first_seq)) as outbox:
            acked = _acked(folder, outbox, report)
            try:
                if not folder.has_ended_line():
                    problem = _recover_metrics(folder, outbox, acked)
                    _diagnose(folder, outbox)
            except OSError as error:
                problem = f"The trainer's last lines could not be read: {error}."
            return _hand_over(outbox, report, acked), problem
    except ControlError:
        raise  # the report couldn't be sent now either, and the next reap retries
    except Exception as error:
        log.exception("the lines of %s can't be handed over", folder.path)
        return [], f"Its last lines could not be handed over: {type(error).__name__}: {error}."[:500]


def _first_receipt(folder: AttemptFolder, receipt: Receipt) -> Receipt:
    """Return the receipt of an earlier reap whose report was lost if both receipts are free, because a repeated reap
    finds nothing; otherwise `receipt`."""
    document = folder.read_json(FileName.REAPED)
    try:
        earlier_receipt = from_dict(Receipt, document) if document else receipt
    except ContractError:
        return receipt
    return earlier_receipt if earlier_receipt.free and receipt.free else receipt


def _tear_down(
    folder: AttemptFolder,
    placement: Placement | None,
    settings: HostSettings,
    read_gpus: ReadGpus,
) -> Receipt:
    teardown = Teardown(
        lambda: leftovers(folder),
        settings,
        now=time.monotonic(),
        baselines=_baselines(folder, placement) if placement else {},
        peaks={},
        ports=placement.every_port if placement else (),
        read_gpus=read_gpus,
        is_orphan=lambda process: True,  # their supervisor is gone
    )
    while (receipt := teardown.tick(time.monotonic())) is None:
        time.sleep(settings.tick_watched_s)
    # Resources that are unknown can't be proved free.
    return receipt if placement else dataclasses.replace(receipt, free=False)


def _baselines(folder: AttemptFolder, placement: Placement) -> dict[int, int]:
    """Return the baseline of each leased GPU in MiB, 0 where none was recorded. Return {} if the supervisor started no
    process, because then the memory in use isn't the attempt's. (A supervisor writes pids.json and opens the log of its
    first child before it starts the child.)"""
    logs = {path.name for path in (folder / FileName.LOGS).glob("*.log")}
    has_pids = os.path.lexists(folder / FileName.PIDS)
    if folder.was_started() and not has_pids and logs == {folder.log("supervisor").name}:
        return {}
    recorded = (folder.read_json(FileName.PIDS) or {}).get("baselines")
    baselines = {int(gpu): int(mib) for gpu, mib in recorded.items()} if isinstance(recorded, dict) else {}
    return {gpu: baselines.get(gpu, 0) for gpu in placement.every_gpu}


def _recover_metrics(folder: AttemptFolder, outbox: Outbox, acked: int) -> str:
    """Add the trainer's lines that the supervisor hadn't read when it died. Return a note about invalid ones, or "".

    The trainer's lines are in the outbox in order, so they are counted; timestamps can't be used, because clocks
    change. The control plane may have more lines than the disk, if some were sent from memory while the disk was full,
    or were lost in a power failure. That many of the trainer's lines are skipped, because all lines missing on the disk
    may be the trainer's, and no line may be stored twice.
    """
    stored_count = outbox.count(TRAINER_KINDS) + outbox.skip_to(acked)
    tail = Tail(folder / FileName.METRICS, trainer_line)
    while True:
        lines = tail.read()
        for line in lines[stored_count:]:
            outbox.add(line.text)
        stored_count = max(0, stored_count - len(lines))
        if tail.is_at_end():
            break
    tail.close()
    if tail.trouble is not None:
        raise tail.trouble
    return dropped_lines_note(tail.bad_lines) if tail.bad_lines else ""


def _diagnose(folder: AttemptFolder, outbox: Outbox) -> None:
    if outbox.count({EventKind.DIAGNOSED}) or facts_of(folder.path).reason in UNDIAGNOSED:
        return
    call = BackgroundCall("diagnosis", lambda: diagnosis_of(folder.path))
    data = call.value() if call.wait(DIAGNOSIS_WAIT_S) else None
    if data is not None:
        outbox.add(event_line(EventKind.DIAGNOSED, data, t=time.time()))


def _hand_over(outbox: Outbox, report: _Report, acked: int) -> list[Line]:
    offset = outbox.offset_after(acked)
    waiting_lines: list[Line] = []
    while True:
        lines, next_offset = outbox.read_after(offset, max_bytes=1 << 20)
        unconfirmed = _without_gaps([line for line in lines if line.seq > acked], acked)
        waiting_lines += unconfirmed
        if next_offset == offset:
            return waiting_lines
        # Lines that a full disk keeps in memory follow each read that reaches the file's end.
        offset, acked = next_offset, unconfirmed[-1].seq if unconfirmed else acked
        if len(waiting_lines) > MAX_LINES_IN_REPORT:
            deliver(report.control, report.attempt_id, waiting_lines)
            waiting_lines = []


def _without_gaps(lines: list[Line], acked: int) -> list[Line]:
    """Return the lines, with a note for each lost one, because the control plane accepts no line after a gap."""
    filled: list[Line] = []
    for line in lines:
        for seq in range(acked + 1, min(line.seq, acked + 1 + MAX_LOST_LINES)):
            note = event_line(EventKind.NOTE, {"text": LOST, "level": "warning"}, t=line.t)
            filled += filter(None, [line_of(numbered(note, seq))])
        filled.append(line)
        acked = line.seq
    return filled


def _hand_over_files(folder: AttemptFolder, settings: HostSettings, report: _Report) -> None:
    samples = SampleUploader(report.attempt_id, folder / FileName.SAMPLES, report.control, settings, hold=lambda: False)
    logs = LogUploader(report.attempt_id, folder, report.control, settings, watched=lambda: False, hold=lambda: False)
    samples.close()
    logs.close()
    deadline = time.monotonic() + FILES_DEADLINE_S
    while time.monotonic() < deadline and not (logs.drained and (samples.drained or samples.refused)):
        wait = min(samples.tick(time.monotonic()), logs.tick(time.monotonic()))
        time.sleep(min(wait, 0.5))
    samples.release()
    logs.release()


def _acked(folder: AttemptFolder, outbox: Outbox, report: _Report) -> int:
    """Return the last seq that the control plane has, by asking it: the file may be outdated if the disk was full."""
    try:
        return max(outbox.first_seq - 1, report.control.sync(report.attempt_id, []).ack)
    except ControlRefused:
        pass  # the control plane doesn't know the attempt, and will refuse the report as well
    try:
        return int((folder / FileName.ACK).read_text())
    except (OSError, ValueError):
        return outbox.first_seq - 1


def _is_working_in(row: Process, path: str) -> bool:
    """Return whether a process of the folder's owner or of the current user has its working directory in the folder.
    Processes with a terminal are left out: people may have opened a shell in this folder."""
    cwd = procfs.working_directory(row.pid) if row.tty == 0 else None
    if cwd is None:
        return False
    if cwd.endswith(_REMOVED) and not os.path.exists(cwd):  # a folder may really have this name
        cwd = cwd.removesuffix(_REMOVED)
    users = {os.getuid()}
    with suppress(OSError):
        users.add(os.stat(path).st_uid)
    return Path(cwd).is_relative_to(path) and procfs.user(row.pid) in users


def _own_lineage(rows: list[Process]) -> set[int]:
    parents = {row.pid: row.ppid for row in rows}
    lineage, pid = set(), os.getpid()
    while pid > 0 and pid not in lineage:
        lineage.add(pid)
        pid = parents.get(pid, 0)
    return lineage


def _detail_without_lines(folder: AttemptFolder, placement: Placement | None, receipt: Receipt) -> str:
    exists = os.path.isdir(folder.path)  # a failing file system is not an error here
    situation = "The attempt's folder contains no lines" if exists else "The host has no folder for this attempt"
    if placement is None:
        return f"{situation}, and the host doesn't know which GPUs the attempt used, so none is proved free."
    return f"{situation}. {_sentence(receipt)}"


def _sentence(receipt: Receipt) -> str:
    if receipt.survivors:
        return f"The supervisor was gone. {_processes(len(receipt.survivors))} could not be ended."
    count = receipt.processes_ended
    return f"The supervisor was gone. {_processes(count)} of the run {'was' if count == 1 else 'were'} ended."


def _processes(count: int) -> str:
    return f"{count} process{'es' * (count != 1)}"
