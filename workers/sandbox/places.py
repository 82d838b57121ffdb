"""The files that sandboxed code may read: the interpreter, its libraries and what they are linked with. Nothing of a
home, of the project's data or of the system's settings."""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
_SYSTEM = ("lib", "lib32", "lib64", "libx32", "bin", "sbin")
_LINKING = ("/etc/ld.so.cache", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")


@dataclass(frozen=True)
class Places:
    python: str
    """The interpreter itself, no link and no environment's."""
    libraries: tuple[str, ...]
    """What goes on sys.path beside the standard library."""
    folders: tuple[str, ...]
    """Folders and files that may be read, none of them a link."""
    links: tuple[tuple[str, str], ...]
    """(where, to): links of the root folder, such as /lib."""


def here() -> Places:
    """Of the interpreter that runs this."""
    libraries = tuple(_real(path) for path in sys.path if Path(path).name in ("site-packages", "dist-packages"))
    folders = [f"/usr/{name}" for name in _SYSTEM] + [f"/{name}" for name in _SYSTEM] + list(_LINKING)
    folders += [os.path.join(sys.base_prefix, name) for name in ("bin", "lib", "lib64")]
    folders += [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), os.path.join(sys.prefix, "bin")]
    folders += [*libraries, str(PACKAGE)]
    links = tuple((path, os.readlink(path)) for path in (f"/{name}" for name in _SYSTEM) if os.path.islink(path))
    real = dict.fromkeys(path for path in folders if os.path.exists(path) and not os.path.islink(path))
    outer = tuple(path for path in real if not any(path.startswith(other + "/") for other in real))
    return Places(python=_real(sys.executable), libraries=tuple(dict.fromkeys(libraries)), folders=outer, links=links)


def _real(path: str) -> str:
    return os.path.realpath(path)
