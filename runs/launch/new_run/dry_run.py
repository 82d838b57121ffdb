"""A draft or a run as the commands of its processes, and as a .zip that trains without the control plane.

Nothing is stored or sent: the attempt described here exists only on the page.
"""

import io
import os
import shutil
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

from django.template.loader import render_to_string

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.exchange.writing import formats
from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.hardware.profile_pages.profile_yaml import export
from controlplane.catalogue.hardware.profiles import Profile
from runs.engine.hosts.view import HostView
from runs.engine.models import Run
from runs.engine.scheduling import leasing
from runs.engine.spec import freeze, ready_with, spec_of
from runs.engine.warm.idle import with_own_servers
from runs.launch.new_run.drafting import CheckedChoices, candidate_hosts, checked, forecast
from runs.launch.new_run.forms import LaunchForm
from workers.contract.run.hardware import BATCH_FIELDS
from workers.contract.run.spec import AttemptSpec, Placement, RunSpec
from workers.contract.stack import dry_run
from workers.contract.stack.commands import Programs
from workers.contract.wire.documents import ContractError, from_dict, to_json
from workers.contract.wire.names import FileName

MAX_ARCHIVES = 4
"""Maximum archives at a time per web process, since each takes as much space as its dataset until it has been sent."""
_ARCHIVES = threading.BoundedSemaphore(MAX_ARCHIVES)


class NothingToShow(Exception):
    """Error of choices that don't make a spec yet, or whose catalogue rows were deleted."""


@dataclass(frozen=True)
class ShownPlacement:
    placement: Placement
    programs: Programs
    sentence: str
    """Sentence on where the commands would run, or why they could not run now."""
    certain: bool = True
    """False for an assumed placement, made because the resources are in use or don't exist."""


@dataclass(frozen=True)
class DryRun:
    spec: AttemptSpec
    location: ShownPlacement
    version: DatasetVersion
    description: str

    def commands(self) -> list[dict[str, Any]]:
        """List each process's role and command. Raises NothingToShow if the profile's settings don't fit together."""
        try:
            processes = dry_run.processes(self.spec, self.location.programs, folder="FOLDER")
            return [{"role": process.role, "text": dry_run.shell(process)} for process in processes]
        except ValueError as error:  # ContractError is one
            raise NothingToShow(f"No commands can be built from the profile: {error}.") from error

    @property
    def file_name(self) -> str:
        return f"{self.spec.attempt_id}-dry-run"


def of_form(form: LaunchForm) -> DryRun:
    """Build a dry run of the form's current values. Raises NothingToShow if the form is incomplete or not valid, and
    ContractError if its values don't form a valid spec."""
    if not form.is_valid():
        hint = "" if form.to_choose else " Fix the problems that Preflight marks red."
        choose = f"Still to choose: {', '.join(form.to_choose).lower()}." if form.to_choose else ""
        raise NothingToShow(f"{choose}{hint}".strip())
    draft_check = checked(form)
    spec = freeze(draft_check.request, "draft")
    location = _forecast_placement(draft_check) or _assumed_placement(spec, draft_check.hosts)
    description = str(form.chosen("profile").description)
    return DryRun(_attempt(spec, location), location, form.chosen("dataset_version"), description)


def of_run(run: Run) -> DryRun:
    """Build a dry run of a frozen run, from its first step and with its last attempt's placement."""
    spec, attempt = spec_of(run), run.latest()
    if attempt.placement:
        placement = with_own_servers(from_dict(Placement, attempt.placement))
        host = Host.objects.filter(name=placement.host).first()
        sentence = f"As on {placement.host}, where attempt {attempt.number} ran."
        location = ShownPlacement(placement, programs_of(host), sentence)
    else:
        location = _assumed_placement(spec, candidate_hosts(run.host))
    description = run.profile.description if run.profile else ""
    return DryRun(_attempt(spec, location), location, run.dataset_version, description)


def commands_of(build: Callable[[], DryRun]) -> dict[str, Any]:
    """Build the context of the page: the commands and where they would run, or the reason why there are none."""
    try:
        dry = build()
        return {"commands": dry.commands(), "location": dry.location, "exports": formats(dry.spec.run.hardware)}
    except (NothingToShow, ContractError) as error:
        return {"problem": str(error)}


def programs_of(host: Host | None) -> Programs:
    """Read the command lines that the host has reported."""
    programs = (host.inventory if host else {}).get("programs")
    programs = programs if isinstance(programs, dict) else {}
    command_lines = {name: tuple(map(str, programs[name])) for name in ("trainer", "vllm") if programs.get(name)}
    return replace(Programs(), **command_lines)


def write(dry: DryRun) -> IO[bytes]:
    """Write the .zip to a temporary file and return the file. Raises NothingToShow if no commands can be built, the
    dataset's file is missing, or MAX_ARCHIVES others are being downloaded."""
    dry.commands()
    if not dry.version.rows_path.exists():
        raise NothingToShow(f"The file of dataset {dry.version} is missing.")
    file = _Archive()
    try:
        _pack(dry, file)
    except BaseException:
        file.close()
        raise
    return file


class _Archive(io.FileIO):
    """An unnamed temporary file, which counts for MAX_ARCHIVES until its sender closes it."""

    def __init__(self) -> None:
        if not _ARCHIVES.acquire(blocking=False):
            message = f"{MAX_ARCHIVES} dry runs are already being downloaded, which is the limit."
            raise NothingToShow(f"{message} Try again when a download has finished.")
        try:
            with tempfile.TemporaryFile() as file:
                super().__init__(os.dup(file.fileno()), "w+b")
        except BaseException:
            _ARCHIVES.release()
            raise

    def close(self) -> None:
        if not self.closed:
            _ARCHIVES.release()
        super().close()


def _pack(dry: DryRun, file: IO[bytes]) -> None:
    files = _text_files(dry)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(_archive_entry(dry, name), content)
        dataset = _archive_entry(dry, FileName.DATASET)
        dataset.compress_type = zipfile.ZIP_STORED  # Parquet is compressed
        with dry.version.rows_path.open("rb") as source, archive.open(dataset, "w", force_zip64=True) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        by_hash = {version.sha256: version for version in ready_with([s.sha256 for s in dry.spec.run.data.sources])}
        for sha256, version in by_hash.items():
            archive.write(version.rows_path, f"{dry.file_name}/{FileName.SOURCES}/{sha256}.parquet")
    file.seek(0)


def _text_files(dry: DryRun) -> dict[str, str]:
    run = dry.spec.run
    batch = {name: run.grpo[name] for name in BATCH_FIELDS if name in run.grpo}
    profile = Profile(run.hardware.profile, dry.description, run.hardware, run.lora, batch)
    return {
        dry_run.SCRIPT: dry_run.script(dry.spec, dry.location.programs),
        dry_run.ACCELERATE: dry_run.accelerate_yaml(dry.spec),
        FileName.SPEC: to_json(dry.spec),
        "profile.yaml": export(profile),
        "README.txt": _readme(dry),
    }


def _archive_entry(dry: DryRun, name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(f"{dry.file_name}/{name}", time.localtime()[:6])
    entry.compress_type = zipfile.ZIP_DEFLATED
    # The spec names folders and prompts may be private: readable only by the owner, as in an attempt's folder.
    entry.external_attr = (0o100700 if name == dry_run.SCRIPT else 0o100600) << 16
    return entry


def _attempt(spec: RunSpec, location: ShownPlacement) -> AttemptSpec:
    return AttemptSpec(f"{spec.run_id}-1", number=1, first_seq=1, run=spec, placement=location.placement)


def _forecast_placement(draft_check: CheckedChoices) -> ShownPlacement | None:
    placement = forecast(draft_check.draft, draft_check.hosts).placement
    if placement is None:
        return None
    host = next(view.row for view in draft_check.hosts if view.name == placement.host)
    return ShownPlacement(placement, programs_of(host), f"As they would start now on {placement.host}.")


def _assumed_placement(spec: RunSpec, hosts: Sequence[HostView]) -> ShownPlacement:
    """Place the run on the first host that could take it if idle, or otherwise on a made-up host."""
    need = leasing.need_of(spec.hardware)
    for view in hosts:
        placement = leasing.allocate(need, view.row, {})
        if isinstance(placement, Placement):
            sentence = (
                f"The run would have to wait now; the commands assume that nothing else is running on {view.name}."
            )
            return ShownPlacement(placement, programs_of(view.row), sentence, certain=False)
    # The made-up host also needs the GPU indexes that the profile pins.
    pinned_count = max((*need.pinned, *need.pinned_server, -1)) + 1
    gpus = [{"index": index} for index in range(max(pinned_count, need.gpus + need.server_gpus))]
    made_up_host = Host(name="no-host", inventory={"gpus": gpus, "cpu_slots": need.cpu_slots})
    placement = leasing.allocate(need, made_up_host, {})
    if not isinstance(placement, Placement):
        raise NothingToShow(f"No host fits this profile: {placement.text}.")
    sentence = "No host has the resources of this profile; GPU and port numbers assume a machine with exactly these."
    return ShownPlacement(placement, Programs(), sentence, certain=False)


def _readme(dry: DryRun) -> str:
    run, hardware, placement = dry.spec.run, dry.spec.run.hardware, dry.spec.placement
    packages = ["torch", "trl", "transformers", "peft", "accelerate", "datasets"]
    packages += ["vllm"] * (hardware.rollout != "transformers") + ["deepspeed"] * hardware.strategy.startswith("zero")
    packages += ["bitsandbytes"] * (hardware.quantization != "none" or hardware.optimizer == "adamw_8bit")
    context = {
        "run": run,
        "line": "=" * (len(run.name) + 11),
        "location": dry.location.sentence,
        "packages": packages,
        "from_hub": dry_run.from_hub(dry.spec),
        "gpus": [str(index) for index in sorted(placement.every_gpu)],
        "ports": [str(port) for port in placement.every_port],
    }
    return render_to_string("launch/new_run/dry_run_readme.txt", context)
