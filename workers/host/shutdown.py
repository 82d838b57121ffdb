"""Shutdown of a host's runs, by `python -m workers.host.shutdown` or by the host's program in a container.

A supervisor outlives the host's program on purpose, so that no run is lost in an update or a crash. In a container that
stops, it can't. Each supervisor then gets a file with the reason and whether to save, and SIGTERM; this program waits
until the supervisors have handed over their receipts.
"""

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

POLL_S = 0.1
LOCK_WRITE_S = 0.5
SPARE_S = 15.0
"""Seconds in addition to the deadlines for saving, killing, proof, uploading and handing over."""


def end_runs(settings: HostSettings, *, save: bool, notice_at: float | None = None) -> int:
    """End all supervisors of this host, wait for them, and return how many are still alive. No run may be started at
    the same time, so stop the worker first. `notice_at`: when the notice began, by time.monotonic(); None means now."""
    signalled: set[Identity] = set()
    deadline = (time.monotonic() if notice_at is None else notice_at) + max_duration_s(settings, save=save)
    while alive := dict(supervisors(settings)) or _started_recently(settings):
        for identity, folder in alive.items():
            within_s = max(0.0, deadline - time.monotonic()) if settings.stop_notice_s else None
            stop = HostStop(EndReason(settings.stop_reason), save, within_s)
            if identity not in signalled and _signal(identity, folder, stop):
                signalled.add(identity)
        if time.monotonic() > deadline:
            log.error("still not ended: %s", ", ".join(str(folder.path) for folder in alive.values()))
            break
        time.sleep(POLL_S)
    return len(alive)


def _started_recently(settings: HostSettings) -> dict[Identity, AttemptFolder]:
    # A supervisor started by the worker's last command may not have written its identity to the lock yet.
    time.sleep(LOCK_WRITE_S)
    return dict(supervisors(settings))


def max_duration_s(settings: HostSettings, *, save: bool) -> float:
    """Return the maximum time for ending the runs, in seconds; a container's stop_grace_period must be longer."""
    if settings.stop_notice_s:
        return settings.stop_notice_s
    saving_s = settings.save_deadline_s if save else 0.0
    killing_s = settings.term_grace_s + settings.kill_deadline_s + settings.gpu_free_deadline_s
    uploading_s = handing_over_s = SIGTERM_DRAIN_S
    return saving_s + killing_s + uploading_s + handing_over_s + SPARE_S


def supervisors(settings: HostSettings) -> Iterator[tuple[Identity, AttemptFolder]]:
    """Yield the live supervisors of this host, as named in their locks. Locks of other machines and containers that
    share the folder have another boot id or name no process here; those of other hosts on this machine, such as a
    second Slurm job, belong to another host by their spec."""
    boot_id = procfs.boot_id()
    for lock in settings.runs_dir.glob(f"*/*/{FileName.LOCK}"):
        folder = AttemptFolder(lock.parent)
        holder = folder.read_json(FileName.LOCK) or {}
        identity = Identity(holder.get("pid", 0), holder.get("start_time", 0))
        row = procfs.read(identity.pid) if holder.get("boot_id") == boot_id else None
        if row is not None and row.alive and row.identity == identity and _belongs_to(settings.name, folder):
            yield identity, folder


def _belongs_to(host: str, folder: AttemptFolder) -> bool:
    spec = folder.read_json(FileName.SPEC) or {}
    placement = spec.get("placement")
    return not isinstance(placement, dict) or placement.get("host") == host


def _signal(identity: Identity, folder: AttemptFolder, stop: HostStop) -> bool:
    content = {"reason": stop.reason, "save": stop.saves, "within_s": stop.within_s}
    try:
        folder.write(FileName.HOST_STOP, json.dumps(content))
    except OSError:
        log.exception("%s can't be written to, so its run ends without saving", folder.path)
    try:
        procfs.send(identity, signal.SIGTERM)
    except OSError:
        log.exception("process %d can't be signalled", identity.pid)
        return False
    return True


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workers.host.shutdown",
        description="End this host's runs and wait for their receipts. Stop the host's worker first.",
    )
    parser.add_argument("--save", action="store_true", help="save a checkpoint of each run first")
    save: bool = parser.parse_args(argv).save
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
    try:
        settings = HostSettings.from_env()
    except SettingsError as error:
        sys.exit(str(error))
    return 1 if end_runs(settings, save=save or settings.at_stop == AtStop.SAVE) else 0


if __name__ == "__main__":
    sys.exit(main())
