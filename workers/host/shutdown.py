"""Ends the runs of a host that shuts down: `python -m workers.host.shutdown`, and the host's program in a container.

A supervisor outlives the host's program on purpose, so that an update or a crash costs no run. Where it can't, in a
container that stops, each is told why and whether to save, gets SIGTERM, and is waited for until its receipt is
handed over.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import time
from collections.abc import Iterator

from workers.contract.wire.names import EndReason, FileName
from workers.settings import AtStop, HostSettings, SettingsError
from workers.supervisor.ending import SIGTERM_DRAIN_S
from workers.supervisor.processes import procfs
from workers.supervisor.processes.folder import AttemptFolder, HostStop
from workers.supervisor.processes.procfs import Identity

log = logging.getLogger(__name__)

LOOK_S = 0.1
SIGNING_S = 0.5
SPARE_S = 15.0
"""Beyond the deadlines of saving, killing, proof, uploading and handing over: for what lies between them."""


def end_runs(settings: HostSettings, *, save: bool, told_at: float | None = None) -> int:
    """Tell all supervisors of this host to end, and wait; the number of those that are still there. None may be started
    meanwhile: stop the worker first. `told_at`: when the notice began, by time.monotonic(); None: now."""
    told: set[Identity] = set()
    deadline = (time.monotonic() if told_at is None else told_at) + longest_s(settings, save=save)
    while left := dict(supervisors(settings)) or _just_started(settings):
        for identity, folder in left.items():
            within_s = max(0.0, deadline - time.monotonic()) if settings.stop_notice_s else None
            stop = HostStop(EndReason(settings.stop_reason), save, within_s)
            if identity not in told and _tell(identity, folder, stop):
                told.add(identity)
        if time.monotonic() > deadline:
            log.error("still not ended: %s", ", ".join(str(folder.path) for folder in left.values()))
            break
        time.sleep(LOOK_S)
    return len(left)


def _just_started(settings: HostSettings) -> dict[Identity, AttemptFolder]:
    """A supervisor that the worker's last command has started may not have signed its lock yet."""
    time.sleep(SIGNING_S)
    return dict(supervisors(settings))


def longest_s(settings: HostSettings, *, save: bool) -> float:
    """How long it takes at most; a container's stop_grace_period must be longer."""
    if settings.stop_notice_s:
        return settings.stop_notice_s
    saving = settings.save_deadline_s if save else 0.0
    killing = settings.term_grace_s + settings.kill_deadline_s + settings.gpu_free_deadline_s
    uploading = handing_over = SIGTERM_DRAIN_S
    return saving + killing + uploading + handing_over + SPARE_S


def supervisors(settings: HostSettings) -> Iterator[tuple[Identity, AttemptFolder]]:
    """The live supervisors that this host has started: their locks name them. One of another machine with the same
    folder, or of a container beside this one, has another boot id, or no such process here; one of another host on this
    machine, such as a second Slurm job, has another host in its spec."""
    boot_id = procfs.boot_id()
    for lock in settings.runs_dir.glob(f"*/*/{FileName.LOCK}"):
        folder = AttemptFolder(lock.parent)
        holder = folder.read_json(FileName.LOCK) or {}
        identity = Identity(holder.get("pid", 0), holder.get("start_time", 0))
        row = procfs.read(identity.pid) if holder.get("boot_id") == boot_id else None
        if row is not None and row.alive and row.identity == identity and _is_of(settings.name, folder):
            yield identity, folder


def _is_of(host: str, folder: AttemptFolder) -> bool:
    spec = folder.read_json(FileName.SPEC) or {}
    placement = spec.get("placement")
    return not isinstance(placement, dict) or placement.get("host") == host


def _tell(identity: Identity, folder: AttemptFolder, stop: HostStop) -> bool:
    left = {"reason": stop.reason, "save": stop.saves, "within_s": stop.within_s}
    try:
        folder.write(FileName.HOST_STOP, json.dumps(left))
    except OSError:
        log.exception("%s can't be written to: its run ends without saving", folder.path)
    try:
        procfs.send(identity, signal.SIGTERM)
    except OSError:
        log.exception("process %d can't be told", identity.pid)
        return False
    return True


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workers.host.shutdown",
        description="End the runs of this host, and wait for their receipts. Stop its worker first.",
    )
    parser.add_argument("--save", action="store_true", help="let them save a checkpoint first")
    save: bool = parser.parse_args(argv).save
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
    try:
        settings = HostSettings.from_env()
    except SettingsError as error:
        sys.exit(str(error))
    return 1 if end_runs(settings, save=save or settings.at_stop == AtStop.SAVE) else 0


if __name__ == "__main__":
    sys.exit(main())
