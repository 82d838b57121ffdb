"""The files that sandboxed code may read (the interpreter, its libraries and their dependencies), and the bubblewrap
command that shows it nothing else: no home folder, no project data, no system settings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.sandbox.isolation.lockdown import WORK

PACKAGE = Path(__file__).resolve().parent
_SYSTEM = ("lib", "lib32", "lib64", "libx32", "bin", "sbin")
_LINKING = ("/etc/ld.so.cache", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
_NOBODY = "65534"


@dataclass(frozen=True)
class FileLayout:
    python: str
    """The interpreter itself, neither a link nor a virtual environment's."""
    libraries: tuple[str, ...]
    """Entries of sys.path other than the standard library."""
    folders: tuple[str, ...]
    """Readable folders and files without links."""
    links: tuple[tuple[str, str], ...]
    """(path, target) of links in the root folder, such as /lib."""


@dataclass(frozen=True)
class Interpreter:
    """Another interpreter than this one, and what of ours it may import beside the sandbox."""

    python: str
    package: str
    """Its name, such as workers.packages.inside."""
    folder: str
    """Where that package lies."""


def current() -> FileLayout:
    """The layout of the current interpreter."""
    return _layout(_facts(), ())


def of(interpreter: Interpreter) -> FileLayout:
    """Raises OSError if it can't be asked."""
    command = [interpreter.python, "-I", "-B", "-c", _ASK]
    try:
        asked = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S, check=True)
        return _layout(json.loads(asked.stdout), (interpreter.folder,))
    except (subprocess.SubprocessError, ValueError) as error:
        raise OSError(f"{interpreter.python} could not be asked for its folders: {error}") from None


_ASK_S = 60
_ASK = """
import json, sys, sysconfig
print(json.dumps({"executable": sys.executable, "path": sys.path, "base": sys.base_prefix, "prefix": sys.prefix,
                  "stdlib": [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]}))
"""


def _facts() -> dict[str, Any]:
    stdlib = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    return {
        "executable": sys.executable,
        "path": sys.path,
        "base": sys.base_prefix,
        "prefix": sys.prefix,
        "stdlib": stdlib,
    }


def _layout(facts: Mapping[str, Any], more: Sequence[str]) -> FileLayout:
    libraries = tuple(_real(path) for path in facts["path"] if Path(path).name in ("site-packages", "dist-packages"))
    folders = [f"/usr/{name}" for name in _SYSTEM] + [f"/{name}" for name in _SYSTEM] + list(_LINKING)
    folders += [os.path.join(facts["base"], name) for name in ("bin", "lib", "lib64")]
    folders += [*facts["stdlib"], os.path.join(facts["prefix"], "bin"), *libraries, str(PACKAGE), *more]
    links = tuple((path, os.readlink(path)) for path in (f"/{name}" for name in _SYSTEM) if os.path.islink(path))
    real = dict.fromkeys(path for path in folders if os.path.exists(path) and not os.path.islink(path))
    outer = tuple(path for path in real if not any(path.startswith(other + "/") for other in real))
    return FileLayout(_real(facts["executable"]), tuple(dict.fromkeys(libraries)), outer, links)


def _real(path: str) -> str:
    return os.path.realpath(path)


def bubblewrap_program() -> str | None:
    return shutil.which("bwrap") or shutil.which("bwrap", path="/usr/bin:/usr/local/bin")


def bubblewrap_command(bwrap: str, layout: FileLayout, zygote: Sequence[str]) -> list[str]:
    """The command that runs the zygote as process 1 of its own namespaces, with a root that contains only `layout`: no
    /proc, no /sys, an empty network.

    The one capability kept creates the namespaces and mounts of evaluations, which drop it. --die-with-parent is not
    used: it refers to the thread that started the zygote, which may end sooner. The zygote watches its owner instead.
    """
    own = ("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    argv = [bwrap, *own, "--as-pid-1", "--new-session", "--uid", _NOBODY, "--gid", _NOBODY]
    argv += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    for folder in layout.folders:
        argv += ["--ro-bind", folder, folder]
    for path, target in layout.links:
        argv += ["--symlink", target, path]
    for device in DEVICES:
        argv += ["--dev-bind", device, device]
    return [*argv, "--dir", WORK, "--chdir", WORK, "--remount-ro", "/", "--", *zygote]
