"""The files that sandboxed code may read (the interpreter, its libraries and their dependencies), and the bubblewrap
command that hides all others: no home folder, no project data, no system settings."""

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
_LINKER_PATHS = ("/etc/ld.so.cache", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
_NOBODY_UID = "65534"


@dataclass(frozen=True)
class FileLayout:
    python: str
    libraries: tuple[str, ...]
    folders: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    """Links in the root folder, such as /lib, as (path, target)."""


@dataclass(frozen=True)
class PackageInterpreter:
    """Another interpreter, and the package of ours that it may import in addition to the sandbox."""

    python: str
    package: str
    folder: str


def current() -> FileLayout:
    """Return the layout of this process's interpreter."""
    stdlib = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    facts = {"executable": sys.executable, "path": sys.path, "base": sys.base_prefix, "prefix": sys.prefix}
    return _layout({**facts, "stdlib": stdlib}, ())


def of(interpreter: PackageInterpreter) -> FileLayout:
    """Return the layout of another interpreter. Raises OSError if it doesn't report its folders."""
    command = [interpreter.python, "-I", "-B", "-c", _QUERY]
    try:
        completed = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_QUERY_S, check=True)
        return _layout(json.loads(completed.stdout), (interpreter.folder,))
    except (subprocess.SubprocessError, ValueError) as error:
        raise OSError(f"{interpreter.python} did not report its folders: {error}") from None


_QUERY_S = 60
_QUERY = """
import json, sys, sysconfig
print(json.dumps({"executable": sys.executable, "path": sys.path, "base": sys.base_prefix, "prefix": sys.prefix,
                  "stdlib": [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]}))
"""


def _layout(facts: Mapping[str, Any], own_folders: Sequence[str]) -> FileLayout:
    packages = ("site-packages", "dist-packages")
    libraries = tuple(os.path.realpath(path) for path in facts["path"] if Path(path).name in packages)
    folders = [f"/usr/{name}" for name in _SYSTEM] + [f"/{name}" for name in _SYSTEM] + list(_LINKER_PATHS)
    folders += [os.path.join(facts["base"], name) for name in ("bin", "lib", "lib64")]
    folders += [*facts["stdlib"], os.path.join(facts["prefix"], "bin"), *libraries, str(PACKAGE), *own_folders]
    links = tuple((path, os.readlink(path)) for path in (f"/{name}" for name in _SYSTEM) if os.path.islink(path))
    real_folders = dict.fromkeys(path for path in folders if os.path.exists(path) and not os.path.islink(path))
    outer = tuple(path for path in real_folders if not any(path.startswith(parent + "/") for parent in real_folders))
    return FileLayout(os.path.realpath(facts["executable"]), tuple(dict.fromkeys(libraries)), outer, links)


def bubblewrap_program() -> str | None:
    """Return the path of bubblewrap, or None if it isn't installed."""
    return shutil.which("bwrap") or shutil.which("bwrap", path="/usr/bin:/usr/local/bin")


def bubblewrap_command(bwrap: str, layout: FileLayout, zygote: Sequence[str]) -> list[str]:
    """Return the command that runs the zygote as process 1 of its own namespaces. The zygote's root contains only
    `layout`, without /proc and /sys, and its network is empty. It keeps one capability for the namespaces and mounts of
    evaluations, which drop it. --die-with-parent is not used, because it watches the thread that started the zygote,
    which may end earlier; the zygote watches its owner instead."""
    own_namespaces = (
        "--unshare-user",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
    )
    argv = [bwrap, *own_namespaces, "--as-pid-1", "--new-session", "--uid", _NOBODY_UID, "--gid", _NOBODY_UID]
    argv += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    for folder in layout.folders:
        argv += ["--ro-bind", folder, folder]
    for path, target in layout.links:
        argv += ["--symlink", target, path]
    for device in DEVICES:
        argv += ["--dev-bind", device, device]
    return [*argv, "--dir", WORK, "--chdir", WORK, "--remount-ro", "/", "--", *zygote]
