"""Checks of the checkpoint from which an attempt resumes or starts, before anything slow is started.

Nothing is unpickled: a torch file is a zip archive, whose end shows whether it is complete.
"""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workers.contract.run.hardware import ZERO, Strategy
from workers.contract.run.spec import LoraSpec, RunSpec
from workers.models.files import InspectionError, header_length, json_object, shards_of, tensors_of

STATE = "trainer_state.json"
ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_HEADER_BYTES = 100 * 2**20
"""Upper bound of a header's length, as in the safetensors library."""

MAX_TARGETS = 20
SHARDED = ZERO | {Strategy.FSDP2}


class CheckpointError(Exception):
    """Raised when the attempt can't resume or start from a checkpoint; the message names the file."""


def check(folder: Path, run: RunSpec) -> None:
    """Check that the run can resume from the checkpoint. Raises CheckpointError for the first problem."""
    with _readable(folder):
        step = _json(folder / STATE).get("global_step")
        if step != _step_of(folder):
            raise _error(folder / STATE, f"belongs to step {step}.")
        _check_model(folder, run)
        for name in _torch_files(folder, run):
            _check_torch_file(folder / name)


def check_weights(folder: Path, run: RunSpec) -> None:
    """Check that the run can start with the checkpoint's weights. Raises CheckpointError for the first problem."""
    with _readable(folder):
        _check_model(folder, run)


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    if not folder.is_dir():
        raise CheckpointError(f"The checkpoint {folder.name} is not on this host.")
    try:
        yield
    except (OSError, InspectionError) as error:
        raise CheckpointError(f"The checkpoint {folder.name} can't be read: {error}") from error


def _check_model(folder: Path, run: RunSpec) -> None:
    if run.lora is not None:
        _check_adapter(folder, run.lora, run.model.path)
    else:
        _check_weights(folder, run)


def _check_adapter(folder: Path, lora: LoraSpec, model: str) -> None:
    config = _json(folder / ADAPTER_CONFIG)
    if config.get("r") != lora.r:
        raise CheckpointError(
            f"{folder.name}/{ADAPTER_CONFIG} has LoRA rank {config.get('r')}, but the run has {lora.r}."
        )
    saved_targets, targets = config.get("target_modules"), set(lora.target_modules)
    # PEFT stores a long list, and all-linear, in another form.
    comparable = targets != {"all-linear"} and len(targets) < MAX_TARGETS
    if comparable and isinstance(saved_targets, list) and set(saved_targets) != targets:
        raise CheckpointError(f"{folder.name}/{ADAPTER_CONFIG} has adapters on different modules than the run.")
    base = config.get("base_model_name_or_path")
    if isinstance(base, str) and Path(base).name != Path(model).name:
        raise CheckpointError(f"{folder.name}/{ADAPTER_CONFIG} belongs to the model {base}.")
    _check_tensor_file(folder / ADAPTER)


def _check_weights(folder: Path, run: RunSpec) -> None:
    if (folder / INDEX).exists():
        names = shards_of(_json(folder / INDEX))
    elif run.hardware.strategy in SHARDED and not (folder / WEIGHTS).exists():
        return  # the ranks' own files hold the weights
    else:
        names = [WEIGHTS]
    for name in names:
        _check_tensor_file(folder / name)


def _torch_files(folder: Path, run: RunSpec) -> Iterator[str]:
    """Yield the names of a checkpoint's torch files, which hold everything except the weights."""
    count = run.hardware.processes
    if run.grpo.get("save_only_model"):
        return
    ranks = [""] if count == 1 else [f"_{rank}" for rank in range(count)]
    yield from (f"rng_state{rank}.pth" for rank in ranks)
    if run.hardware.strategy not in SHARDED:
        yield from ("optimizer.pt", "scheduler.pt")
    if run.hardware.strategy not in ZERO:
        return
    step = _step_of(folder)
    shards = sorted(folder.glob(f"global_step{step}/*zero_pp_rank_*_optim_states.pt"))
    if len(shards) != count:
        saved_ranks = f"{len(shards)} rank{'s' * (len(shards) != 1)}"
        raise CheckpointError(
            f"{folder.name}/global_step{step} has the state of {saved_ranks}, but the run has {count}."
        )
    yield from (str(shard.relative_to(folder)) for shard in shards)


def _json(path: Path) -> dict[str, Any]:
    try:
        return json_object(path.read_bytes(), path.name)
    except FileNotFoundError:
        raise _error(path, "is missing.") from None
    except (InspectionError, ValueError):
        raise _error(path, "is not complete: it isn't valid JSON.") from None


def _check_tensor_file(path: Path) -> None:
    if not path.is_file():
        raise _error(path, "is missing.")
    with open(path, "rb") as file:
        length = header_length(file.read(8), path.name, limit=MAX_HEADER_BYTES)
        _, end = tensors_of(file.read(length), path.name)
    size = path.stat().st_size
    if size != 8 + length + end:
        raise _error(path, f"is not complete: it has {size:,} of {8 + length + end:,} bytes.")


def _check_torch_file(path: Path) -> None:
    if not path.is_file():
        raise _error(path, "is missing.")
    if not zipfile.is_zipfile(path):
        raise _error(path, "is not complete: the end of the file is missing.")


def _error(path: Path, problem: str) -> CheckpointError:
    return CheckpointError(f"{path.parent.name}/{path.name} {problem}")


def _step_of(folder: Path) -> int:
    number = folder.name.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdigit() else -1
