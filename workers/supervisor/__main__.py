"""python -m workers.supervisor FOLDER: run the attempt described by FOLDER/spec.json, detached.

The token comes on standard input, so that no argument list or environment contains it. The started process returns at
once; the process that supervises is detached from it.
"""

import argparse
import logging
import os
import signal
import sys
import time
from pathlib import Path

from workers.settings import HostSettings
from workers.supervisor.processes import procfs
from workers.supervisor.processes.folder import AttemptFolder, Lock
from workers.supervisor.servers import compilecache

log = logging.getLogger("workers.supervisor")

LOCK_PATIENCE_S = 1.0
"""Seconds for which acquiring is retried: a process that only checks whether the lock is held takes it briefly."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workers.supervisor", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="an attempt's folder with spec.json")
    parser.add_argument("--dry-run", action="store_true", help="import everything, do nothing")
    parser.add_argument("--foreground", action="store_true", help="don't detach")
    options = parser.parse_args(argv)
    if options.dry_run:
        from workers.supervisor import lifecycle  # noqa: F401

        return 0
    if options.folder is None:
        parser.error("FOLDER is needed")
    if not options.foreground and os.fork() > 0:
        return 0  # no thread has been started, so forking is safe
    return supervise(AttemptFolder(options.folder.resolve()))


def supervise(folder: AttemptFolder) -> int:
    """Run an attempt to its end, unless another process holds its lock or has run it, and return the exit code."""
    lock = Lock(folder)
    if not _acquire(lock):
        return 0  # another delivery of the same launch was first
    procfs.become_undumpable()
    procfs.become_subreaper()
    token = _read_token()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.raiseExceptions = False  # a full disk must not end the supervisor through its log
    logging.getLogger("httpx").setLevel(logging.WARNING)
    folder.hold()
    if folder.was_started() or folder.has_ended():
        log.warning("this folder has been used by a supervisor before; it is not started again")
        return 0
    lock.sign()  # not earlier: the file may still name a previous supervisor
    settings = HostSettings.from_env()
    _run(folder, settings, token)
    lock.release()
    compilecache.tidy(settings)
    return 0


def _run(folder: AttemptFolder, settings: HostSettings, token: str) -> None:
    from workers.supervisor.lifecycle import Lifecycle
    from workers.supervisor.processes import gpus
    from workers.supervisor.reports.control import Control

    def make_control() -> Control:
        return Control.of(settings, token, follow=True)

    # Through the module, so that tests can substitute other GPUs.
    spec = folder.read_spec()
    lifecycle = Lifecycle(folder, spec, settings, make_control=make_control, read_gpus=lambda: gpus.read())
    signal.signal(signal.SIGTERM, lambda *_: lifecycle.on_sigterm())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: lifecycle.wake())
    log.info("supervising %s as pid %d", lifecycle.spec.attempt_id, os.getpid())
    lifecycle.run()


def _acquire(lock: Lock) -> bool:
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while not lock.acquire():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def _read_token() -> str:
    with os.fdopen(os.dup(0), "rb") as pipe:
        token = pipe.read().decode().strip()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return token


if __name__ == "__main__":
    sys.exit(main())
