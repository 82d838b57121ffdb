"""Conversion of a model to one GGUF file with llama.cpp's script, which the host's owner has installed.

The script runs in a separate process on the CPU. It gets no secrets, no token and no access to the hub, and reads only
safetensors.
"""

import hashlib
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from workers.contract.run.jobs import FLOAT32, GGUF_ENDING, GGUF_SCRIPT, GGUF_TYPES, GgufSettings, is_gguf_name
from workers.contract.wire.hub_files import ONLY_PICKLES, PICKLES, is_complete
from workers.contract.wire.names import FileName
from workers.trainer.configuration.spec import SpecError
from workers.trainer.jobs import DISK_FULL, ModelJob, flush_to_disk, programs

CHECKOUT = "GRPO_LLAMA_CPP_DIR"
WEIGHTS = "model*.safetensors"
"""Pattern of weights files that the script loads safely; without any it would load pickles."""
GGUF_MAGIC = b"GGUF"
PERCENT = re.compile(r"^Writing: +(\d+)%")
MISSING_MODULE = re.compile(r"No module named '([\w.]+)'")
INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH")


def run(job: ModelJob, settings: GgufSettings) -> None:
    """Convert the model. If that fails, leave no file and raise SpecError."""
    if settings.type not in GGUF_TYPES or not is_gguf_name(settings.name):
        raise SpecError(f"{settings.name!r} of type {settings.type!r} can't be created.")
    script = _script()
    _check_model(job)
    job.check_room(_size(job.checkpoint, settings.type), "The GGUF file")
    with job.unfinished("the GGUF file") as folder:
        folder.mkdir(parents=True)
        _convert(job, settings, script, folder / f"{settings.name}{GGUF_ENDING}")


def _convert(job: ModelJob, settings: GgufSettings, script: Path, target: Path) -> None:
    job.begin(100)
    job.stage("converting")
    command = [sys.executable, str(script), str(job.checkpoint), "--outfile", str(target), "--outtype", settings.type]
    environment = _environment(target.parent / "home")
    code, last_lines = programs.follow(command, percent=PERCENT, progress=job.progress, environment=environment)
    if code != 0:
        raise SpecError(_failure_message(job, code, last_lines))
    job.stage("computing its checksum")
    try:
        with target.open("rb") as file:
            is_gguf = file.read(len(GGUF_MAGIC)) == GGUF_MAGIC
            file.seek(0)
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        is_gguf, checksum = False, ""
    if not is_gguf:
        raise SpecError(f"{GGUF_SCRIPT} reported no error but didn't write a GGUF file: {programs.last_of(last_lines)}")
    flush_to_disk(target.parent)
    final_path = job.folder / FileName.GGUF / target.name
    final_path.parent.mkdir(exist_ok=True)
    os.rename(target, final_path)
    job.progress(100)
    facts = {"folder": str(final_path.parent), "name": final_path.name, "sha256": checksum}
    job.result("The file is on the host.", **facts, size=final_path.stat().st_size)


# --- before anything slow ----------------------------------------------------------------------------------------


def _script() -> Path:
    folder = os.environ.get(CHECKOUT, "")
    if not folder:
        raise SpecError(f"This host can't convert models: {CHECKOUT} is not set to a checkout of llama.cpp.")
    script = Path(folder) / GGUF_SCRIPT
    if not script.is_file():
        raise SpecError(f"{CHECKOUT} is {folder}, but there is no {GGUF_SCRIPT} in it.")
    return script


def _check_model(job: ModelJob) -> None:
    folder = job.checkpoint
    if job.is_adapter:
        raise SpecError(
            f"{folder.name} is a LoRA adapter: merge it into its base model, then convert the merged model."
        )
    if not any(folder.glob(WEIGHTS)):
        pickled = any(path for pattern in PICKLES for path in folder.glob(pattern))
        raise SpecError(f"{folder.name} can't be converted. " + (ONLY_PICKLES if pickled else "It has no weights."))
    if not is_complete(folder):
        raise SpecError(f"{folder.name} is incomplete: its configuration, its tokenizer or a part of it is missing.")
    code = next(folder.glob("*.py"), None)
    if code is not None and not job.spec.run.model.trust_remote_code:  # the script would run it for some models
        raise SpecError(f"{folder.name} contains its own code ({code.name}), which the run was not allowed to trust.")


def _size(folder: Path, kind: str) -> float:
    config = json.loads((folder / "config.json").read_bytes())
    stored_bits = 32 if (config.get("dtype") or config.get("torch_dtype")) == FLOAT32 else 16
    return sum(path.stat().st_size for path in folder.glob(WEIGHTS)) * GGUF_TYPES[kind].bits / stored_bits


def _environment(home: Path) -> dict[str, str]:
    """Return the script's environment. `home`: the folder to use as HF_HOME, because the user's own may contain a
    token for the hub. PYTHONSAFEPATH is omitted, because the script imports modules from its own folder."""
    inherited_values = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    threads = {name: value for name, value in os.environ.items() if name.startswith(("OMP_", "MKL_"))}
    overrides = {
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",  # nothing is written into the owner's checkout
    }
    return {**inherited_values, **threads, **overrides}


# --- the end -----------------------------------------------------------------------------------------------------


def _failure_message(job: ModelJob, code: int, last_lines: Sequence[str]) -> str:
    output, end = "\n".join(last_lines), programs.last_of(last_lines)
    if DISK_FULL.search(output):
        return job.no_room("the GGUF file")
    if code < 0:
        return f"{GGUF_SCRIPT} was killed by {signal.Signals(-code).name}: {end}"
    if module := MISSING_MODULE.search(end):
        if module[1].partition(".")[0] in ("gguf", "conversion"):
            return (
                f"{GGUF_SCRIPT} lacks a part of llama.cpp: {CHECKOUT} must be a complete checkout, with gguf-py. {end}"
            )
        return (
            f"{GGUF_SCRIPT} needs a module that the trainer's interpreter ({sys.executable}) lacks: install it there, "
            f"or set GRPO_TRAINER_PYTHONPATH to a folder that has it. {end}"
        )
    return f"{GGUF_SCRIPT} failed: {end}"
