"""Preparation of an attempt before anything is started: the claim, dataset and corpora, and the GPUs' baselines."""

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from workers.artifactstore import Corrupted, StoreError
from workers.contract.reports.lines import ClaimAnswer
from workers.contract.run import corpora, jobs, mixing, sinks
from workers.contract.run.spec import AttemptSpec, is_address, models_of, servers_of
from workers.contract.stack.commands import environment_problem, is_local
from workers.contract.wire.documents import ContractError, digest
from workers.contract.wire.names import SCHEMA, EndReason, FileName
from workers.models import inspection
from workers.models.files import InspectionError
from workers.settings import HostSettings
from workers.supervisor import end_reasons
from workers.supervisor.end_reasons import End
from workers.supervisor.inputs import checkpoints, restoring
from workers.supervisor.inputs.checkpoints import CheckpointError
from workers.supervisor.inputs.datasetcache import DatasetCache
from workers.supervisor.processes import procfs
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.processes.gpus import ReadGpus, used_mib
from workers.supervisor.processes.loops import Backoff
from workers.supervisor.reports.control import Control, Unreachable

T = TypeVar("T")


class NotPrepared(Exception):
    """Raised when the attempt can't start; the message says why."""

    reason = EndReason.LAUNCH_FAILED


class PathRefused(NotPrepared):
    """Raised when the spec names a folder that runs on this host may not use."""

    reason = EndReason.SPEC_REFUSED


class GpusBusy(NotPrepared):
    reason = EndReason.GPUS_BUSY


def end_for(error: Exception) -> End:
    if isinstance(error, NotPrepared):
        return End(error.reason, str(error))
    if isinstance(error, CheckpointError):
        return End(EndReason.CHECKPOINT_UNUSABLE, str(error))
    if isinstance(error, OSError):
        return end_reasons.of_error(error)
    return End(EndReason.LAUNCH_FAILED, str(error))


def claim(spec: AttemptSpec, settings: HostSettings, control: Control) -> ClaimAnswer:
    """Claim the attempt, retrying until the control plane responds. Raises Unreachable after the deadline."""
    return _retry_until(
        settings.claim_deadline_s,
        settings,
        lambda: control.claim(
            spec.attempt_id, schema=SCHEMA, host=settings.name, pid=os.getpid(), boot_id=procfs.boot_id()
        ),
    )


def spec_sha256(spec: AttemptSpec, settings: HostSettings) -> str:
    """Return the hash of the spec as it was sent, before the launcher replaced the checkpoint's name with its path."""
    name = (spec.resume_from or "").removeprefix(f"{settings.runs_dir}/")
    return digest(dataclasses.replace(spec, resume_from=name or None))


def prepare(
    spec: AttemptSpec, settings: HostSettings, control: Control, folder: AttemptFolder, *, stores: bool = False
) -> None:
    """Fetch and check all files that the attempt needs. `stores`: whether an artifact store may have checkpoints that
    are not on this host. Raises NotPrepared if a file is missing, changed or not allowed, CheckpointError if a
    checkpoint is damaged or doesn't fit the run, and Unreachable if the control plane can't be reached."""
    if stores:
        _restore(spec, settings, control)
    check_paths(spec, settings)
    if spec.resume_from:
        checkpoints.check(Path(spec.resume_from), spec.run)
    elif spec.run.start_from:
        try:
            checkpoints.check_weights(settings.runs_dir / spec.run.start_from, spec.run)
        except CheckpointError as error:
            raise PathRefused(f"The run needs a checkpoint. {error}") from None
    if jobs.kind_of(spec.run.kind).reads_rows:
        data = spec.run.data
        download = partial(control.fetch_dataset, spec.attempt_id)
        title = f"The dataset {data.name} version {data.version}"
        _fetch(data.sha256, folder / FileName.DATASET, download, title, settings)
        for source in data.sources:
            download = partial(control.fetch_source, spec.attempt_id, source.sha256)
            target = mixing.path_in(folder.path, source.sha256)
            target.parent.mkdir(mode=0o700, exist_ok=True)
            _fetch(source.sha256, target, download, f"The dataset {source.name} version {source.version}", settings)
    for corpus in spec.run.episodes.corpora if spec.run.episodes else ():
        target = corpora.path_in(folder.path, corpus.sha256)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        download = partial(control.fetch_corpus, spec.attempt_id, corpus.sha256)
        _fetch(corpus.sha256, target, download, f"The corpus {corpus.title}", settings)


def _restore(spec: AttemptSpec, settings: HostSettings, control: Control) -> None:
    try:
        restoring.restore_missing(spec, settings, control)
    except Corrupted as error:
        raise CheckpointError(str(error)) from error
    except StoreError as error:
        raise NotPrepared(f"A checkpoint that the run needs is not on this host. {error}") from error


def spec_problem(spec: AttemptSpec) -> str:
    """Return why the spec can't be started, or "". The control plane has made the same checks, but each host decides
    what it starts."""
    for name, value in spec.run.hardware.environment.items():
        problem = environment_problem(name, value) if isinstance(value, str) else f"{name} must be a string."
        if problem:
            return f"hardware.environment: {problem}"
    for sink in spec.run.sinks:
        if sink_problem := sinks.problem(sink):
            return sink_problem
    server = spec.run.hardware.server
    invalid = [address for address in server.attached if not is_address(address)] if server else []
    if invalid:
        return f"hardware.server.attached: {invalid[0]!r} is not an address such as http://127.0.0.1:8000."
    try:
        places = servers_of(spec)
    except ContractError as error:
        return str(error)
    for place in places:
        if place.own and server is not None and len(place.gpus) != server.gpus:
            gpus_needed = f"{server.gpus} GPU{'s' * (server.gpus != 1)}"
            return f"placement: {place.role} needs {gpus_needed} but gets {len(place.gpus)}."
    return ""


def check_paths(spec: AttemptSpec, settings: HostSettings) -> None:
    """Check that local models and checkpoints are in the host's folders for them, because models may contain code.
    Raises PathRefused if one is elsewhere."""
    try:
        for model in models_of(spec.run):
            if is_local(model.path):
                inspection.folder_inside(Path(model.path), settings.model_folders)
        checkpoint = spec.resume_from or spec.run.start_from
        if checkpoint and (settings.runs_dir / checkpoint).exists():  # another check reports a missing one
            inspection.folder_inside(settings.runs_dir / checkpoint, (settings.runs_dir,))
    except InspectionError as error:
        raise PathRefused(str(error)) from None


def _fetch(sha256: str, target: Path, download: Callable[[Path], str], title: str, settings: HostSettings) -> None:
    """Fetch a file from this host's cache or the control plane. `target` is created only once complete and verified."""
    part = target.with_name(f"{target.name}.part")
    cache = DatasetCache(settings.dataset_cache_folder, settings.dataset_cache_mib * 2**20)
    part.unlink(missing_ok=True)
    with cache.alone(sha256, settings.dataset_deadline_s):
        if not cache.copy_to(sha256, part):
            digest = _retry_until(settings.dataset_deadline_s, settings, lambda: download(part))
            if digest != sha256:
                part.unlink()
                raise NotPrepared(
                    f"{title} arrived with checksum {digest[:12]}…, "
                    f"but the run was launched with {sha256[:12]}…: its file on the control plane has changed."
                )
            cache.keep(sha256, part)
    part.replace(target)


def gpu_baselines(
    gpus: Sequence[int],
    settings: HostSettings,
    read_gpus: ReadGpus,
    attached: Sequence[str] = (),
) -> dict[int, int]:
    """Return the MiB in use on each leased GPU before the attempt starts anything. `attached`: servers that receive
    weights by NCCL and keep some memory on each run's GPUs. Raises NotPrepared, and GpusBusy if a GPU doesn't
    become free in time."""
    if not gpus:
        return {}
    deadline = time.monotonic() + settings.gpu_free_deadline_s
    while True:
        readings = read_gpus()
        used_by_gpu = used_mib(readings)
        for gpu in readings:
            if gpu.index in gpus and gpu.trouble:
                raise NotPrepared(f"GPU {gpu.index} can't be read: {gpu.trouble}.")
        missing_gpus = [gpu for gpu in gpus if gpu not in used_by_gpu]
        if missing_gpus:
            reported = f"{len(used_by_gpu)} GPU{'s' * (len(used_by_gpu) != 1)}"
            raise NotPrepared(
                f"GPU {missing_gpus[0]} is missing: this host reports {reported}. Check nvidia-smi there."
            )
        busy_mib = {gpu: used_by_gpu[gpu] for gpu in gpus if used_by_gpu[gpu] > settings.gpu_busy_mib}
        if not busy_mib:
            return {gpu: used_by_gpu[gpu] for gpu in gpus}
        if time.monotonic() >= deadline:
            usage = ", ".join(f"GPU {gpu}: {mib} MiB" for gpu, mib in busy_mib.items())
            fix = f" Attached vLLM servers keep some memory after each run: restart {', '.join(attached)}."
            raise GpusBusy(f"Something else is using memory on leased GPUs ({usage}).{fix if attached else ''}")
        time.sleep(0.5)


def _retry_until(deadline_s: float, settings: HostSettings, request: Callable[[], T]) -> T:
    deadline = time.monotonic() + deadline_s
    backoff = Backoff(settings.backoff_max_s)
    while True:
        try:
            return request()
        except Unreachable:
            wait = backoff.failed()
            if time.monotonic() + wait >= deadline:
                raise
            time.sleep(wait)
