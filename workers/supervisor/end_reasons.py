"""The reason why an attempt ended, from exits and a table of log patterns; and its diagnosis, from the logs."""

import errno
import logging
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.contract.wire.names import EndReason
from workers.diagnosis.folder import NothingToRead, diagnose
from workers.supervisor.processes.child import DOWNLOAD, TRAINER, ChildExit
from workers.supervisor.processes.folder import AttemptFolder, last_lines
from workers.supervisor.reports.trainerlines import TrainerProgress

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class End:
    reason: EndReason
    detail: str


_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

TRAINER_CODES = {
    3: EndReason.SPEC_REFUSED,
    4: EndReason.NO_STEPS,
    7: EndReason.REWARD_FAILED,
    8: EndReason.ATROPOS_UNREACHABLE,
}
"""End reasons by the trainer's exit code; the trainer's last output has the details."""
MODEL_UNAVAILABLE_CODE = 6

_SIGNS: tuple[tuple[EndReason, re.Pattern[str]], ...] = (
    (EndReason.DISK_FULL, re.compile(r"No space left on device|Errno 28|Disk quota exceeded")),
    (
        EndReason.OOM,
        re.compile(
            r"CUDA out of memory|OutOfMemoryError|CUDA error: out of memory|can't allocate memory|"
            r"Cannot allocate memory|^MemoryError|std::bad_alloc"
        ),
    ),
)
_SERVER_SIGNS = (
    *_SIGNS,
    (EndReason.OOM, re.compile(r"No available memory for the cache blocks|less than desired GPU memory utilization")),
    (EndReason.PORT_IN_USE, re.compile(r"address already in use", re.IGNORECASE)),
)
_NOISE = re.compile(r"^[EWI]\d{4} |^\s|^={3,}|^-{3,}|^Exception ignored|^\{'")
"""Pattern of lines that never say what happened: torchrun's own report, stack frames, rulers and metrics."""

DIAGNOSIS_WAIT_S = 3.0
_MAX_LOG_BYTES = 256 << 20
_MAX_CAUSES = 5
WITHOUT_FAILURE = frozenset(
    {EndReason.COMPLETED, EndReason.STOPPED_BY_USER, EndReason.LIMIT_REACHED, EndReason.EARLY_STOPPED}
    | {EndReason.PREEMPTED, EndReason.HOST_SHUTDOWN, EndReason.HOST_PREEMPTED}
)
UNDIAGNOSED = WITHOUT_FAILURE | {EndReason.FOLDER_LOST}


class Judge:
    """The judge of exits that no stop caused, by the attempt's logs and the kernel's count of killed processes."""

    def __init__(self, folder: AttemptFolder) -> None:
        self._folder = folder
        self._kernel_kills = kernel_kills()

    def trainer(self, exit_: ChildExit, progress: TrainerProgress) -> End:
        return of_trainer(exit_, progress, log=self._folder.log(TRAINER), killed_by_kernel=self._was_killed())

    def server(self, exit_: ChildExit, *, among: int = 1) -> End:
        """Judge a server's exit. `among`: the attempt's number of servers; the end names the server if there are
        several."""
        log, was_killed = self._folder.log(exit_.role), self._was_killed()
        end = _of_failure("vLLM server", EndReason.VLLM_EXITED, exit_, log, _SERVER_SIGNS, killed_by_kernel=was_killed)
        return end if among == 1 else End(end.reason, f"{exit_.role}: {end.detail}")

    def download(self, exit_: ChildExit) -> End:
        log = self._folder.log(DOWNLOAD)
        if exit_.code == MODEL_UNAVAILABLE_CODE:
            return End(EndReason.MODEL_UNAVAILABLE, _last_message(log))
        return _of_failure("download", EndReason.MODEL_UNAVAILABLE, exit_, log)

    def _was_killed(self) -> bool:
        return kernel_kills() > self._kernel_kills


def of_trainer(exit_: ChildExit, progress: TrainerProgress, *, log: Path, killed_by_kernel: bool) -> End:
    """Return the end of an attempt whose trainer has exited without being stopped."""
    if exit_.code == 0:
        return _of_clean_exit(progress)
    if exit_.code in TRAINER_CODES:
        return End(TRAINER_CODES[exit_.code], _last_message(log))
    if _disk_is_full(log):
        return End(EndReason.DISK_FULL, f"The trainer {_describe_exit(exit_)} and the run's disk has no space left.")
    return _of_failure("trainer", EndReason.TRAINER_EXITED, exit_, log, killed_by_kernel=killed_by_kernel)


def _of_failure(
    program: str,
    reason: EndReason,
    exit_: ChildExit,
    log: Path,
    signs: Sequence[tuple[EndReason, re.Pattern[str]]] = _SIGNS,
    *,
    killed_by_kernel: bool = False,
) -> End:
    """Return the end indicated by the log's last line with a sign; if no line has one, an end with `reason`."""
    for line in reversed(_lines(log)):
        for sign_reason, pattern in signs:
            if pattern.search(line):
                return End(sign_reason, _shorten(line))
    if killed_by_kernel and exit_.code == 137:
        return End(EndReason.OOM, f"The kernel killed the {program}: the host's memory was exhausted.")
    return End(reason, f"The {program} {_describe_exit(exit_)}. {_last_message(log)}".strip())


def of_error(error: BaseException) -> End:
    """Return the end for an error within the supervisor."""
    if isinstance(error, OSError) and error.errno in _DISK_FULL:
        return of_disk(error)
    return End(EndReason.SUPERVISOR_ERROR, f"{type(error).__name__}: {error}"[:500])


def of_disk(error: OSError) -> End:
    """Return the end for a run's folder that can't be written to or read from."""
    reason = EndReason.DISK_FULL if error.errno in _DISK_FULL else EndReason.SUPERVISOR_ERROR
    return End(reason, f"The run's folder on the host can't be used: {error.strerror}.")


def kernel_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory since boot."""
    with suppress(FileNotFoundError):  # some containers hide it
        counts = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        return int(counts.get("oom_kill", 0))
    return 0


def _of_clean_exit(progress: TrainerProgress) -> End:
    if not progress.ended:
        return End(EndReason.TRAINER_EXITED, "The trainer exited with code 0 without reporting the end of training.")
    if not progress.step:
        return End(EndReason.NO_STEPS, "The trainer ended at step 0.")
    if progress.stopped:
        return End(EndReason.STOPPED_BY_USER, "The trainer saved before it ended.")
    return End(EndReason.COMPLETED, "" if progress.is_job else f"{progress.step} step{'s' * (progress.step != 1)}.")


def _describe_exit(exit_: ChildExit) -> str:
    return f"was killed by {exit_.signal}" if exit_.signal else f"exited with code {exit_.code}"


def _last_message(log: Path) -> str:
    for line in reversed(_lines(log)):
        if line.strip() and not _NOISE.search(line):
            return _shorten(line)
    return ""


def _lines(log: Path) -> list[str]:
    return [line.decode(errors="replace") for line in last_lines(log, whole=False)]


def _shorten(line: str) -> str:
    return line.strip()[:400]


def _disk_is_full(path: Path) -> bool:
    try:
        space = os.statvfs(path.parent)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize < 1 << 16


def diagnosis_of(folder: Path) -> dict[str, Any] | None:
    """Diagnose an attempt that has ended, and return its event's data, or None without logs or if the diagnosis
    fails."""
    try:
        report = diagnose(folder, _MAX_LOG_BYTES).as_dict()
    except (OSError, NothingToRead):
        return None
    except Exception:  # a log may contain anything, and an error in reading it must not block the end
        log.exception("the diagnosis failed")
        return None
    return {**report, "diagnoses": report["diagnoses"][:_MAX_CAUSES]}
