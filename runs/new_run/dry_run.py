"""A draft, or a run, as the commands of its processes, and as a dry run to download: a .zip that trains without us.

Nothing is stored and nothing sent: the attempt that is described here exists on the page only.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

from controlplane.datasets.models import DatasetVersion
from controlplane.hardware.models import Host
from controlplane.hardware.profile_yaml import export
from controlplane.hardware.profiles import BATCH_FIELDS, Profile
from runs.hosts.cards import HostView
from runs.models import Run
from runs.new_run.drafting import Checked, candidates, checked, forecast
from runs.new_run.forms import LaunchForm
from runs.scheduling import leasing
from runs.spec import freeze, spec_of
from workers.contract import AttemptSpec, ContractError, FileName, Placement, RunSpec, dry_run, from_dict, to_json
from workers.contract.commands import Programs
from workers.contract.dry_run import PlannedProcess

DRAFT = "draft"
"""Stands for the id that a launch would give the run."""


class NothingToShow(Exception):
    """The form doesn't make a spec yet, or the rows behind it no more."""


@dataclass(frozen=True)
class ShownPlacement:
    placement: Placement
    programs: Programs
    words: str
    """Where the commands would run, or why they would not."""
    certain: bool = True
    """False: made up, since the resources are taken or not to be had."""


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
        """For the page. Raises NothingToShow for a profile whose parts don't fit each other."""
        try:
            return [{"role": process.role, "text": dry_run.shell(process)} for process in self.processes]
        except ValueError as error:  # ContractError is one
            raise NothingToShow(f"The profile makes no commands: {error}.") from error

    @property
    def file_name(self) -> str:
        return f"{self.spec.attempt_id}-dry-run"


def of_form(form: LaunchForm) -> DryRun:
    """What the form would launch now. Raises NothingToShow or ContractError."""
    if not form.is_valid():
        rest = "" if form.to_choose else " Fix what Preflight marks red."
        choose = f"Still to choose: {', '.join(form.to_choose).lower()}." if form.to_choose else ""
        raise NothingToShow(f"{choose}{rest}".strip())
    looked = checked(form)
    spec = freeze(looked.request, DRAFT)
    place = _forecast(looked) or _imagined(spec, looked.hosts)
    description = str(form.row("profile").description)
    return DryRun(_attempt(spec, place), place, form.row("dataset_version"), description)


def of_run(run: Run) -> DryRun:
    """A run as it was frozen, where its last attempt was placed; from its first step."""
    spec, attempt = spec_of(run), run.latest()
    if attempt.placement:
        placement = from_dict(Placement, attempt.placement)
        host = Host.objects.filter(name=placement.host).first()
        place = ShownPlacement(
            placement, programs_of(host), f"As on {placement.host}, where attempt {attempt.number} ran."
        )
    else:
        place = _imagined(spec, candidates(run.host))
    return DryRun(_attempt(spec, place), place, run.dataset_version, run.profile.description if run.profile else "")


def shown(make: Callable[[], DryRun]) -> dict[str, Any]:
    """For a page: the commands and where they would run, or what keeps them from being made."""
    try:
        made = make()
        return {"commands": made.commands(), "place": made.place}
    except (NothingToShow, ContractError) as error:
        return {"problem": str(error)}


def programs_of(host: Host | None) -> Programs:
    """What the host says that it starts."""
    told = (host.inventory if host else {}).get("programs")
    told = told if isinstance(told, dict) else {}
    known = {name: tuple(map(str, told[name])) for name in ("trainer", "vllm") if told.get(name)}
    return replace(Programs(), **known)


def write(made: DryRun) -> IO[bytes]:
    """The .zip, in a file that is gone when it is closed. Raises NothingToShow when the dataset's file is gone."""
    rows = made.version.rows_path
    if not rows.exists():
        raise NothingToShow(f"The file of {made.version} is gone.")
    texts = _texts(made)
    file = tempfile.TemporaryFile()  # noqa: SIM115  whoever sends it closes it
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(_entry(made, name), text)
        with rows.open("rb") as source, archive.open(_entry(made, FileName.DATASET), "w", force_zip64=True) as target:
            shutil.copyfileobj(source, target, 1 << 20)
    file.seek(0)
    return file


def _texts(made: DryRun) -> dict[str, str]:
    run = made.spec.run
    batch = {name: run.grpo[name] for name in BATCH_FIELDS if name in run.grpo}
    profile = Profile(run.hardware.profile, made.description, run.hardware, run.lora, batch)
    return {
        dry_run.SCRIPT: dry_run.script(made.spec, made.place.programs),
        dry_run.ACCELERATE: dry_run.accelerate_yaml(made.spec),
        FileName.SPEC: to_json(made.spec),
        "profile.yaml": export(profile),
        "README.txt": _readme(made),
    }


def _entry(made: DryRun, name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(f"{made.file_name}/{name}", time.localtime()[:6])
    entry.compress_type = zipfile.ZIP_DEFLATED
    # The spec names folders and the prompts may be private: for their owner, as in an attempt's folder.
    entry.external_attr = (0o100700 if name == dry_run.SCRIPT else 0o100600) << 16
    return entry


def _attempt(spec: RunSpec, place: ShownPlacement) -> AttemptSpec:
    return AttemptSpec(f"{spec.run_id}-1", number=1, first_seq=1, run=spec, placement=place.placement)


def _forecast(looked: Checked) -> ShownPlacement | None:
    placement = forecast(looked.draft, looked.hosts).placement
    if placement is None:
        return None
    host = next(view.row for view in looked.hosts if view.name == placement.host)
    return ShownPlacement(placement, programs_of(host), f"As they would start now on {placement.host}.")


def _imagined(spec: RunSpec, hosts: Sequence[HostView]) -> ShownPlacement:
    """On the first host that has what it takes with nothing else there, else on one that nobody has."""
    need = leasing.need_of(spec.hardware)
    for view in hosts:
        placed = leasing.place(need, view.row, {})
        if isinstance(placed, Placement):
            words = f"It would have to wait now: this assumes {view.name} with nothing else running."
            return ShownPlacement(placed, programs_of(view.row), words, certain=False)
    # Indexes that the profile names count too.
    named = max((*need.pinned, *need.pinned_server, -1)) + 1
    gpus = [{"index": index} for index in range(max(named, need.gpus + need.server_gpus))]
    nowhere = Host(name="no-host", inventory={"gpus": gpus, "cpu_slots": need.cpu_slots})
    placed = leasing.place(need, nowhere, {})
    if not isinstance(placed, Placement):
        raise NothingToShow(f"No host fits this profile: {placed.text}.")
    words = "No host has the resources of this profile: numbers assume a machine with just those."
    return ShownPlacement(placed, Programs(), words, certain=False)


def _readme(made: DryRun) -> str:
    hardware, run = made.spec.run.hardware, made.spec.run
    needs = ["torch", "trl", "transformers", "peft", "accelerate", "datasets"]
    needs += ["vllm"] * (hardware.rollout != "transformers") + ["deepspeed"] * hardware.strategy.startswith("zero")
    needs += ["bitsandbytes"] * (hardware.quantization != "none" or hardware.optimizer == "adamw_8bit")
    model = run.model.path
    where = f"{model} from the hub" if dry_run.from_hub(made.spec) else f"the model in {model}"
    gpus = sorted(made.spec.placement.every_gpu)
    return f"""{run.name}: a dry run
{"=" * (len(run.name) + 11)}

It trains as the control plane would, without needing it. {made.place.words}

You need
  - the project's source: its folder goes on PYTHONPATH
  - an interpreter with {", ".join(needs)}
  - {where}
  - {f"GPU {', '.join(map(str, gpus))} of the machine" if gpus else "no GPU"}
{_ports(made)}
Then
    PYTHONPATH=/where/the/project/is TRAINER_PYTHON=/where/the/interpreter/is/bin/python ./run.sh

In this folder
  run.sh          starts each process, waits for the servers, trains, ends what it started
  accelerate.yaml how many trainer processes; DeepSpeed and FSDP are set up from spec.json
  spec.json       everything that the run is
  dataset.parquet the rows it trains on and evaluates; spec.json has their checksum
  profile.yaml    the hardware profile with this run's LoRA and batch, to be imported under Hardware

While it trains, metrics.jsonl and samples.jsonl grow here. `touch STOP` saves a checkpoint and ends it.
Ctrl-C ends it at once. To start anew, unpack again.
"""


def _ports(made: DryRun) -> str:
    ports = [*made.spec.placement.ports, *([made.spec.placement.group_port] if made.spec.placement.group_port else [])]
    return f"  - the ports {', '.join(map(str, ports))} on loopback\n" if ports else ""
