"""What vLLM, torch and Triton compile, kept on the host for later runs: a folder for each set of versions and GPUs.

Each of them looks in its folder by keys of its own, so several attempts share one at a time. An operator's own
VLLM_CACHE_ROOT, TORCHINDUCTOR_CACHE_DIR or TRITON_CACHE_DIR stays.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from workers.settings import HostSettings

log = logging.getLogger(__name__)

FOLDERS = {"VLLM_CACHE_ROOT": "vllm", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
PACKAGES = ("torch", "triton", "vllm")
KEPT_S = 86_400
"""What was used within this time stays, whatever its size: an attempt may still read it."""


def variables(settings: HostSettings, source: Mapping[str, str], gpus: Collection[str]) -> dict[str, str]:
    """For the processes of an attempt on GPUs of these kinds; nothing without a GPU, or with a limit of 0. The folder
    counts as used."""
    unset = [name for name in FOLDERS if not source.get(name)]
    if not (gpus and settings.compile_cache_mib and unset):
        return {}
    folder = settings.compile_cache_folder / key(settings, gpus)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.utime(folder)
    except OSError as error:
        log.warning("compiled kernels are not kept in %s: %s", folder, error)
        return {}
    return {name: str(folder / FOLDERS[name]) for name in unset}


def key(settings: HostSettings, gpus: Collection[str]) -> str:
    """Of the trainer's interpreter, the versions of PACKAGES that it has, and the kinds of GPUs."""
    words = [settings.trainer_python, *sorted(_versions(settings)), *sorted(set(gpus))]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def tidy(settings: HostSettings, now: float | None = None) -> None:
    """Keep to the size limit: the folders that were not used for longest go first. An error changes nothing."""
    now = time.time() if now is None else now
    try:
        folders = sorted(settings.compile_cache_folder.iterdir(), key=lambda folder: folder.stat().st_mtime)
        sizes = {folder: sum(_sizes(folder)) for folder in folders}
        over = sum(sizes.values()) - settings.compile_cache_mib * 2**20
        for folder in folders:
            if over > 0 and now - folder.stat().st_mtime > KEPT_S:
                shutil.rmtree(folder, ignore_errors=True)
                over -= sizes[folder]
    except FileNotFoundError:
        return  # nothing was compiled yet, or another supervisor tidies
    except OSError:
        log.warning("%s could not be tidied", settings.compile_cache_folder, exc_info=True)


def _versions(settings: HostSettings) -> Iterator[str]:
    """As the folders of installed packages are named, without starting the interpreter: torch-2.13.0.dist-info."""
    prefix = Path(settings.trainer_python or sys.executable).parent.parent
    paths = [*prefix.glob("lib/python*/site-packages"), *map(Path, settings.trainer_pythonpath.split(os.pathsep))]
    for path in paths:
        for package in PACKAGES:
            yield from (found.name for found in path.glob(f"{package}-*.dist-info"))


def _sizes(folder: Path) -> Iterator[int]:
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(os.path.join(where, name)).st_size
            except FileNotFoundError:
                continue
