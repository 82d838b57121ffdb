"""The Python environments and their locks. Environments are built so that an interruption leaves nothing broken.

A finished environment has a stamp file with the hash of its lock, an unfinished one a marker file; both change only
under a file lock. A marker, or a stamp with another hash, triggers a rebuild, which is quick because downloads are
cached. A folder with neither was created by someone else: it is used if it has the required packages, and is never
deleted.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from controlplane.setup.bootstrap import torch
from controlplane.setup.bootstrap.console import Failed, ask, say
from controlplane.setup.bootstrap.installers import choose_installer
from workers.contract.stack.packages import SETS

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ROOT / ".tools"
LOCKS = Path(__file__).resolve().parent / "locks"


@dataclass(frozen=True)
class PythonEnvironment:
    title: str
    folder: Path
    lock: Path
    needs: tuple[str, ...]
    """Modules that an environment created by someone else must have to be usable."""
    gpu_lock: Path | None = None
    """Lock of the trainer with torch and vLLM, for GPUs; elsewhere torch's CPU build is added to `lock`."""

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def stamp(self) -> Path:
        return self.folder / ".lock-hash"

    @property
    def marker(self) -> Path:
        return self.folder / ".marker"

    def fingerprint(self, lock: Path) -> str:
        digest = hashlib.sha256(lock.read_bytes())
        if self.gpu_lock is not None:
            digest.update(repr(SETS).encode())
        return digest.hexdigest()

    def is_built(self) -> bool:
        locks = filter(None, (self.lock, self.gpu_lock))
        try:
            return self.stamp.read_text() in map(self.fingerprint, locks) and self.python.exists()
        except FileNotFoundError:
            return False

    def is_foreign(self) -> bool:
        """Return whether someone else created the environment."""
        return self.folder.exists() and not self.stamp.exists() and not self.marker.exists()

    def has_required_modules(self) -> bool:
        code = "import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))"
        return ask([str(self.python), "-c", code, *self.needs]) is not None


BASE = PythonEnvironment(
    "the control plane", ROOT / ".venv", LOCKS / "web.lock", ("django", "celery", "channels", "uvicorn")
)
TEST = PythonEnvironment("the tests", ROOT / ".venv-test", LOCKS / "test.lock", (*BASE.needs, "pytest", "playwright"))
GPU_LOCK = LOCKS / "gpu.lock"
TRAINER = PythonEnvironment("the trainer", ROOT / ".venv-train", LOCKS / "trainer.lock", ("torch", "trl"), GPU_LOCK)
ON_DEMAND = {
    group: PythonEnvironment(title, ROOT / f".venv-{group}", LOCKS / f"{group}.lock", needs)
    for group, title, needs in (
        ("lm-eval", "the benchmarks", ("lm_eval", "transformers", "aiohttp")),
        ("environments", "third-party environments", ("reasoning_gym", "textarena", "openenv")),
        ("atropos", "Atropos", ("atroposlib", "uvicorn", "openai")),
        ("sinks", "the programs that receive metrics", ("tensorboard", "wandb", "trackio", "mlflow")),
    )
}


def build(environment: PythonEnvironment) -> None:
    """Build an environment unless it is up to date. Raises Failed if it can't be built, or if it is someone else's and
    lacks modules."""
    if environment.is_built():
        return
    if environment.is_foreign():
        if environment.has_required_modules():
            return
        raise Failed(
            f"{environment.folder} was not created by manage.py and lacks some of: {', '.join(environment.needs)}.\n"
            "Move it away and run the command again."
        )
    with _install_lock():
        if not environment.is_built():  # another process may have built it while this one waited
            try:
                _build(environment)
            except OSError as error:
                raise Failed(
                    f"Can't write to {environment.folder} ({error.strerror}). "
                    "Fix that and run the same command again; downloads are kept."
                ) from error


def _build(environment: PythonEnvironment) -> None:
    say(f"Installing {environment.title} into {environment.folder.name} (needed once) …")
    installer = choose_installer(TOOLS)
    # An interrupted installer may leave half a package that counts as installed: start from an empty folder.
    _clear(environment)
    installer.make_environment(environment.folder)
    lock = environment.lock
    if environment.gpu_lock is not None and torch.gpu_usable():
        lock = environment.gpu_lock
    installer.install_lock(environment.python, lock)
    if environment.gpu_lock is not None and lock == environment.lock:
        torch.install_cpu(installer, environment.python)
    environment.stamp.write_text(environment.fingerprint(lock))
    environment.marker.unlink()
    say(f"Installed {environment.title}.")


def _clear(environment: PythonEnvironment) -> None:
    environment.folder.mkdir(exist_ok=True)
    environment.marker.touch()
    for entry in environment.folder.iterdir():
        if entry == environment.marker:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


@contextlib.contextmanager
def _install_lock() -> Iterator[None]:
    """Allow only one installation at a time. The kernel releases the lock of a dead process."""
    try:
        TOOLS.mkdir(exist_ok=True)
        handle = os.open(TOOLS / "install.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise Failed(
            f"Can't write to {ROOT} ({error.strerror}). Make the folder writable, or install "
            f"{BASE.lock.relative_to(ROOT)} yourself and set CONTROLPLANE_BOOTSTRAP=off."
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another process is installing; waiting for it …")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
