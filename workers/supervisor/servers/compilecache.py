"""The host's cache of kernels compiled by vLLM, torch and Triton: a folder for each set of versions and GPU models.

Each program uses its own keys in its folder, so several attempts can share a folder at the same time. If the operator
has set VLLM_CACHE_ROOT, TORCHINDUCTOR_CACHE_DIR or TRITON_CACHE_DIR, that takes precedence.
"""

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
MIN_UNUSED_S = 86_400
"""Seconds for which a folder is kept after its last use, whatever its size, because an attempt may still read it."""


def variables(settings: HostSettings, source: Mapping[str, str], gpus: Collection[str]) -> dict[str, str]:
    """Return the variables that name the cache for an attempt on GPUs of these models, and mark its folder as used;
    return {} without GPUs or a cache."""
    unset_names = [name for name in FOLDERS if not source.get(name)]
    if not (gpus and settings.compile_cache_mib and unset_names):
        return {}
    folder = settings.compile_cache_folder / key(settings, gpus)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.utime(folder)
    except OSError as error:
        log.warning("compiled kernels are not kept in %s: %s", folder, error)
        return {}
    return {name: str(folder / FOLDERS[name]) for name in unset_names}


def key(settings: HostSettings, gpus: Collection[str]) -> str:
    """Return the folder's name: a hash of the trainer's interpreter, its versions of PACKAGES, and the GPU models."""
    parts = [settings.trainer_python, *sorted(_versions(settings)), *sorted(set(gpus))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def tidy(settings: HostSettings, now: float | None = None) -> None:
    """Remove the least recently used folders beyond the size limit, unless used lately. Errors are only logged."""
    now = time.time() if now is None else now
    try:
        folders = sorted(settings.compile_cache_folder.iterdir(), key=lambda folder: folder.stat().st_mtime)
        sizes = {folder: sum(_sizes(folder)) for folder in folders}
        excess = sum(sizes.values()) - settings.compile_cache_mib * 2**20
        for folder in folders:
            if excess > 0 and now - folder.stat().st_mtime > MIN_UNUSED_S:
                shutil.rmtree(folder, ignore_errors=True)
                excess -= sizes[folder]
    except FileNotFoundError:
        return  # nothing was compiled yet, or another supervisor is tidying
    except OSError:
        log.warning("%s could not be tidied", settings.compile_cache_folder, exc_info=True)


def _versions(settings: HostSettings) -> Iterator[str]:
    """Yield the names of the packages' folders, such as torch-2.13.0.dist-info, without starting the interpreter."""
    prefix = Path(settings.trainer_python or sys.executable).parent.parent
    paths = [*prefix.glob("lib/python*/site-packages"), *map(Path, settings.trainer_pythonpath.split(os.pathsep))]
    for path in paths:
        for package in PACKAGES:
            yield from (folder.name for folder in path.glob(f"{package}-*.dist-info"))


def _sizes(folder: Path) -> Iterator[int]:
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
