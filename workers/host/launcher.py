"""Launch of an attempt: folder, spec, detached supervisor and lock. A repeated delivery changes nothing."""

import dataclasses
import logging
import os
import subprocess
import time
from collections.abc import Mapping
from contextlib import closing
from enum import StrEnum
from typing import Any

from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.documents import ContractError, from_dict, to_json
from workers.settings import HostSettings
from workers.supervisor.commands import supervisor_environment
from workers.supervisor.processes.child import spawn
from workers.supervisor.processes.folder import AttemptFolder, Lock, last_lines
from workers.supervisor.reports.control import Control, ControlError

log = logging.getLogger(__name__)


class Launch(StrEnum):
    STARTED = "started"
    RUNNING = "running"
    """The supervisor of an earlier delivery, or the reaper, holds the lock."""
    ENDED = "ended"
    LOST = "lost"
    """A supervisor was started here earlier and is gone; the reaper will clean up the folder."""
    FAILED = "failed"
    """No supervisor acquired the lock in time; the supervisor's log says why."""


def launch_and_report(document: Mapping[str, Any], token: str, settings: HostSettings) -> Launch:
    """Launch an attempt and return the outcome. Report a failure to the control plane, which would otherwise only see a
    missing claim."""
    try:
        outcome = launch(document, token, settings)
    except (ContractError, ValueError) as error:
        _report(document, token, settings, f"The launcher refused the attempt: {error}", final=True)
        raise
    except OSError as error:
        _report(document, token, settings, f"The launcher failed: {error}", final=False)
        raise
    if outcome == Launch.FAILED:
        folder = AttemptFolder.of(settings.runs_dir, document["run"]["run_id"], document["number"])
        lines = last_lines(folder.log("supervisor"), whole=False)
        output = next((line.decode(errors="replace").strip()[:400] for line in reversed(lines) if line.strip()), "")
        detail = f"No supervisor acquired the attempt's lock within {settings.lock_wait_s:g} s. {output}"
        _report(document, token, settings, detail.strip(), final=False)
    return outcome


def launch(
    document: Mapping[str, Any], token: str, settings: HostSettings, *, environment: Mapping[str, str] | None = None
) -> Launch:
    """Launch an attempt from its spec as JSON, and return the outcome. Raises ContractError or ValueError if the spec
    is invalid, and OSError if its folder can't be used or nothing can be started."""
    spec = from_dict(AttemptSpec, document)
    if spec.resume_from is not None:
        # The control plane names a checkpoint by run and attempt; only the host knows the path.
        spec = dataclasses.replace(spec, resume_from=str(settings.runs_dir / spec.resume_from))
    folder = AttemptFolder.of(settings.runs_dir, spec.run.run_id, spec.number)
    lock = Lock(folder)
    if lock.is_held():
        return Launch.RUNNING  # checked first: a folder removed during a run must not be recreated
    folder.create()
    if folder.has_ended():
        return Launch.ENDED
    if folder.was_started():
        return Launch.LOST
    folder.write_spec_once(to_json(spec))
    _start(folder, token, settings, os.environ if environment is None else environment)
    return _wait_for_lock(folder, lock, settings.lock_wait_s)


def _start(folder: AttemptFolder, token: str, settings: HostSettings, source: Mapping[str, str]) -> None:
    argv = [*settings.supervisor_command, str(folder.path)]
    process = spawn(argv, supervisor_environment(settings, source), folder, "supervisor", stdin=token.encode())
    try:
        process.wait(settings.lock_wait_s)
    except subprocess.TimeoutExpired:
        log.error("the supervisor of %s did not detach", folder.path)
        process.kill()
        process.wait()


def _wait_for_lock(folder: AttemptFolder, lock: Lock, seconds: float) -> Launch:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if lock.is_held():
            return Launch.STARTED
        if folder.has_ended():
            return Launch.ENDED
        time.sleep(0.01)
    log.error("no supervisor acquired the lock of %s within %g s", folder.path, seconds)
    return Launch.FAILED


def _report(document: Mapping[str, Any], token: str, settings: HostSettings, detail: str, *, final: bool) -> None:
    attempt_id = str(document.get("attempt_id"))
    try:
        with closing(Control.of(settings, token, follow=True)) as control:
            control.send_not_launched(attempt_id, detail[:2000], final=final)
    except ControlError as error:
        # The control plane notices the missing claim and resends the launch.
        log.error("%s was not launched, and this could not be reported: %s", attempt_id, error)
