"""A draft or a run as the commands of its processes, and as a .zip that trains without the control plane.

Nothing is stored or sent: the attempt described here exists only on the page.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.exchange.writing import formats
from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.hardware.profile_pages.profile_yaml import export
from controlplane.catalogue.hardware.profiles import Profile
from runs.engine.hosts.view import HostView
from runs.engine.models import Run
from runs.engine.scheduling import leasing
from runs.engine.spec import freeze, spec_of
from runs.engine.warm.idle import with_own_servers
from runs.launch.new_run.drafting import Checked, candidates, checked, forecast
from runs.launch.new_run.forms import LaunchForm
from workers.contract.run.hardware import BATCH_FIELDS
from workers.contract.run.spec import AttemptSpec, Placement, RunSpec
from workers.contract.stack import dry_run
from workers.contract.stack.commands import Programs
from workers.contract.stack.dry_run import PlannedProcess
from workers.contract.wire.documents import ContractError, from_dict, to_json
from workers.contract.wire.names import FileName

PACKED_AT_ONCE = 2
_packing = threading.BoundedSemaphore(PACKED_AT_ONCE)
DRAFT = "draft"
"""Placeholder for the run's id."""


class NothingToShow(Exception):
    """The choices don't make a spec yet, or rows behind them are gone."""


@dataclass(frozen=True)
class ShownPlacement:
    placement: Placement
    programs: Programs
    words: str
    """The place where the commands would run, or the reason why they would not."""
    certain: bool = True
    """False: an assumed placement, because the resources are in use or don't exist."""


@dataclass(frozen=True)
class DryRun:
    spec: AttemptSpec
    place: ShownPlacement
    version: DatasetVersion
    description: str

    @property
    def processes(self) -> list[PlannedProcess]:
        return dry_run.processes(self.spec, self.place.programs, folder="FOLDER")

    def commands(self) -> list[dict[str, Any]]:
        """The commands for the page. Raises NothingToShow if the profile's parts don't fit together."""
        try:
            return [{"role": process.role, "text": dry_run.shell(process)} for process in self.processes]
        except ValueError as error:  # ContractError is one
            raise NothingToShow(f"The profile makes no commands: {error}.") from error

    @property
    def file_name(self) -> str:
        return f"{self.spec.attempt_id}-dry-run"


def of_form(form: LaunchForm) -> DryRun:
    """The dry run of the form's current values. Raises NothingToShow or ContractError."""
    if not form.is_valid():
        rest = "" if form.to_choose else " Fix what Preflight marks red."
        choose = f"Still to choose: {', '.join(form.to_choose).lower()}." if form.to_choose else ""
        raise NothingToShow(f"{choose}{rest}".strip())
    draft_check = checked(form)
    spec = freeze(draft_check.request, DRAFT)
    placement = _forecast(draft_check) or _imagined(spec, draft_check.hosts)
    description = str(form.chosen("profile").description)
    return DryRun(_attempt(spec, placement), placement, form.chosen("dataset_version"), description)


def of_run(run: Run) -> DryRun:
    """The dry run of a frozen run, with its last attempt's placement, from the first step."""
    spec, attempt = spec_of(run), run.latest()
    if attempt.placement:
        placement = with_own_servers(from_dict(Placement, attempt.placement))
        host = Host.objects.filter(name=placement.host).first()
        place = ShownPlacement(
            placement, programs_of(host), f"As on {placement.host}, where attempt {attempt.number} ran."
        )
    else:
        place = _imagined(spec, candidates(run.host))
    return DryRun(_attempt(spec, place), place, run.dataset_version, run.profile.description if run.profile else "")


def shown(make: Callable[[], DryRun]) -> dict[str, Any]:
    """Context for the page: the commands and where they would run, or why there are none."""
    try:
        dry = make()
        return {"commands": dry.commands(), "place": dry.place, "exports": formats(dry.spec.run.hardware)}
    except (NothingToShow, ContractError) as error:
        return {"problem": str(error)}


def programs_of(host: Host | None) -> Programs:
    """The command lines that the host has reported."""
    programs = (host.inventory if host else {}).get("programs")
    programs = programs if isinstance(programs, dict) else {}
    command_lines = {name: tuple(map(str, programs[name])) for name in ("trainer", "vllm") if programs.get(name)}
    return replace(Programs(), **command_lines)


def write(dry: DryRun) -> IO[bytes]:
    """The .zip, as a file that is deleted when closed. Raises NothingToShow if the dataset's file is gone, or while
    PACKED_AT_ONCE others are packed: rows can be gigabytes."""
    if not dry.version.rows_path.exists():
        raise NothingToShow(f"The file of {dry.version} is gone.")
    if not _packing.acquire(blocking=False):
        raise NothingToShow("Other dry runs are being packed. Try again in a moment.")
    try:
        return _packed(dry)
    finally:
        _packing.release()


def _packed(dry: DryRun) -> IO[bytes]:
    texts = _texts(dry)
    file = tempfile.TemporaryFile()  # noqa: SIM115  # whoever sends it closes it
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(_entry(dry, name), text)
        dataset = _entry(dry, FileName.DATASET)
        dataset.compress_type = zipfile.ZIP_STORED  # Parquet is compressed
        with dry.version.rows_path.open("rb") as source, archive.open(dataset, "w", force_zip64=True) as target:
            shutil.copyfileobj(source, target, 1 << 20)
    file.seek(0)
    return file


def _texts(dry: DryRun) -> dict[str, str]:
    run = dry.spec.run
    batch = {name: run.grpo[name] for name in BATCH_FIELDS if name in run.grpo}
    profile = Profile(run.hardware.profile, dry.description, run.hardware, run.lora, batch)
    return {
        dry_run.SCRIPT: dry_run.script(dry.spec, dry.place.programs),
        dry_run.ACCELERATE: dry_run.accelerate_yaml(dry.spec),
        FileName.SPEC: to_json(dry.spec),
        "profile.yaml": export(profile),
        "README.txt": _readme(dry),
    }


def _entry(dry: DryRun, name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(f"{dry.file_name}/{name}", time.localtime()[:6])
    entry.compress_type = zipfile.ZIP_DEFLATED
    # The spec names folders and prompts may be private: readable only by the owner, as in an attempt's folder.
    entry.external_attr = (0o100700 if name == dry_run.SCRIPT else 0o100600) << 16
    return entry


def _attempt(spec: RunSpec, place: ShownPlacement) -> AttemptSpec:
    return AttemptSpec(f"{spec.run_id}-1", number=1, first_seq=1, run=spec, placement=place.placement)


def _forecast(draft_check: Checked) -> ShownPlacement | None:
    placement = forecast(draft_check.draft, draft_check.hosts).placement
    if placement is None:
        return None
    host = next(view.row for view in draft_check.hosts if view.name == placement.host)
    return ShownPlacement(placement, programs_of(host), f"As they would start now on {placement.host}.")


def _imagined(spec: RunSpec, hosts: Sequence[HostView]) -> ShownPlacement:
    """An assumed placement on the first host that could take the run if idle, otherwise on a made-up host."""
    need = leasing.need_of(spec.hardware)
    for view in hosts:
        placed = leasing.allocate(need, view.row, {})
        if isinstance(placed, Placement):
            words = f"It would have to wait now: this assumes {view.name} with nothing else running."
            return ShownPlacement(placed, programs_of(view.row), words, certain=False)
    # Indexes pinned by the profile count too.
    pinned_count = max((*need.pinned, *need.pinned_server, -1)) + 1
    gpus = [{"index": index} for index in range(max(pinned_count, need.gpus + need.server_gpus))]
    nowhere = Host(name="no-host", inventory={"gpus": gpus, "cpu_slots": need.cpu_slots})
    placed = leasing.allocate(need, nowhere, {})
    if not isinstance(placed, Placement):
        raise NothingToShow(f"No host fits this profile: {placed.text}.")
    words = "No host has the resources of this profile: numbers assume a machine with just those."
    return ShownPlacement(placed, Programs(), words, certain=False)


def _readme(dry: DryRun) -> str:
    hardware, run = dry.spec.run.hardware, dry.spec.run
    needs = ["torch", "trl", "transformers", "peft", "accelerate", "datasets"]
    needs += ["vllm"] * (hardware.rollout != "transformers") + ["deepspeed"] * hardware.strategy.startswith("zero")
    needs += ["bitsandbytes"] * (hardware.quantization != "none" or hardware.optimizer == "adamw_8bit")
    model = run.model.path
    where = f"{model} from the hub" if dry_run.from_hub(dry.spec) else f"the model in {model}"
    gpus = sorted(dry.spec.placement.every_gpu)
    return f"""{run.name}: a dry run
{"=" * (len(run.name) + 11)}

It trains as the control plane would, without needing it. {dry.place.words}

You need
  - the project's source: its folder goes on PYTHONPATH
  - an interpreter with {", ".join(needs)}
  - {where}
{_start(run)}  - {f"GPU {', '.join(map(str, gpus))} of the machine" if gpus else "no GPU"}
{_ports(dry)}
Then
    PYTHONPATH=/where/the/project/is TRAINER_PYTHON=/where/the/interpreter/is/bin/python ./run.sh

In this folder
  run.sh          starts each process, waits for the servers, trains, ends what it started
  accelerate.yaml how many trainer processes; DeepSpeed and FSDP are set up from spec.json
  spec.json       the run's full specification
  dataset.parquet the rows it trains on and evaluates; spec.json has their checksum
  profile.yaml    the hardware profile with this run's LoRA and batch, to be imported under Hardware

While it trains, metrics.jsonl and samples.jsonl grow here. `touch STOP` saves a checkpoint and ends it.
Ctrl-C ends it at once. To start over, unpack the archive again.
"""


def _start(run: RunSpec) -> str:
    return (
        f"  - the checkpoint that it starts from: its folder goes to ../../{run.start_from}\n" if run.start_from else ""
    )


def _ports(dry: DryRun) -> str:
    ports = [*dry.spec.placement.ports, *([dry.spec.placement.group_port] if dry.spec.placement.group_port else [])]
    return f"  - the ports {', '.join(map(str, ports))} on loopback\n" if ports else ""
