"""Whole machines: each has a network namespace, processes, a host name, and a copy of this machine's files of its own.

What is written there is in memory, over this machine's files, and goes with the machine.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from controlplane.setup.serving.processes import BASE_DIR as ROOT

SOURCES = ("controlplane", "docker", "frontend", "runs", "workers", "tests/__init__.py", "tests/fakes/systemctl.py")
FILES = ("manage.py", "grpoctl", "README.md", "pyproject.toml")
BOOT = """
set -eu
cd "$1"; name=$2; source=$3; shift 3
mount --make-rprivate /
mount -t tmpfs -o mode=0755 machine .
cd "$PWD"; mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
mount -t proc proc root/proc
mount --rbind /sys root/sys
mount --rbind /dev root/dev
for folder in dev/shm tmp run; do mount -t tmpfs -o mode=1777 tmpfs root/$folder; done
mkdir -p "root$source"
mount --rbind "$source" "root$source"
chmod 0755 root/run
hostname "$name"
exec chroot root "$@"
"""
OF_ROOT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
INIT = """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("ready", flush=True)
while True:
    signal.pause()
"""
"""Process 1: it reaps whoever has no parent any more. It says `ready` from inside its own root: before that, a command
sent there would run on this machine's own files."""
FOR_ROOT = """
set -eu
chmod a+x /root
printf '#!/bin/sh\\nexec env {settings} "{python}" "$@"\\n' >/usr/local/bin/python3
printf '#!/bin/sh\\nexec /usr/bin/python3 -I "{systemctl}" "$@"\\n' >/usr/local/bin/systemctl
printf '#!/bin/sh\\nexit 0\\n' >/usr/local/bin/apt-get
printf '#!/bin/sh\\nmkdir -p "$3" && exec tar -xf /run/source.tar --no-same-owner -C "$3"\\n' >/usr/local/bin/git
chmod 0755 /usr/local/bin/*
"""
"""Stand-ins: apt-get finds all of it installed, git clone unpacks this source, environments are those of the tests."""


@dataclass(frozen=True)
class Machine:
    name: str
    init: int

    @property
    def at(self) -> list[str]:
        """The words that run a command there."""
        words = ("--mount", "--net", "--pid", "--uts", "--root", "--wd")
        return ["nsenter", f"--target={self.init}", *words, "--"]

    def run(self, script: str, *, given: bytes = b"", environment: Mapping[str, str] | None = None) -> str:
        """As root, in a shell like that of somebody who has just signed in."""
        settings = [f"{name}={value}" for name, value in {**OF_ROOT, **(environment or {})}.items()]
        argv = [*self.at, "env", "-i", *settings]
        done = subprocess.run([*argv, "bash", "-euc", script], input=given, capture_output=True)
        said = (done.stdout + done.stderr).decode(errors="replace")
        assert done.returncode == 0, f"on {self.name}: {said}\n{self.logs()}"
        return done.stdout.decode()

    def logs(self) -> str:
        argv = [*self.at, "sh", "-c", "tail -n 25 /var/log/grpo-*.log /var/log/nginx/error.log /var/log/redis/*.log"]
        return subprocess.run(argv, capture_output=True, text=True, errors="replace").stdout


def missing(*packages: str) -> str:
    """Why no machines can be made here with what these packages bring, or nothing."""
    asked = ["dpkg-query", "-W", "-f", "${Status}\\n", *packages]
    there = subprocess.run(asked, capture_output=True, text=True) if shutil.which("dpkg-query") else None
    if there is None or there.stdout.count("install ok installed") < len(packages):
        return f"not all of Debian's packages are installed here: {' '.join(packages)}"
    with tempfile.TemporaryDirectory() as folder:
        tried = subprocess.run([*_unshare(folder, "try"), "true"], capture_output=True, text=True)
    return f"namespaces of files are refused here: {tried.stderr.strip()}" if tried.returncode else ""


@contextmanager
def machine(name: str, network: list[str], **settings: str) -> Iterator[Machine]:
    """`network`: the words that start a command in its network. `settings`: of every python3 there."""
    with tempfile.TemporaryDirectory(prefix="gt-") as folder:
        init = subprocess.Popen(
            [*network, *_unshare(folder, name), "/usr/bin/python3", "-I", "-c", INIT], stdout=subprocess.PIPE
        )
        try:
            assert init.stdout is not None
            assert init.stdout.readline() == b"ready\n", f"{name} did not start"
            children = Path(f"/proc/{init.pid}/task/{init.pid}/children").read_text().split()
            made = Machine(name, int(children[0]))
            shown = " ".join(f"{name}={value}" for name, value in settings.items())
            systemctl = ROOT / "tests" / "fakes" / "systemctl.py"
            made.run(FOR_ROOT.format(settings=shown, python=sys.executable, systemctl=systemctl))
            made.run("cat >/run/source.tar", given=_source())
            yield made
        finally:
            init.kill()  # and with it everything in there
            init.wait()
            if init.stdout is not None:
                init.stdout.close()


def _unshare(folder: str, name: str) -> list[str]:
    words = ("--mount", "--pid", "--uts", "--fork", "--kill-child")
    return ["unshare", *words, "sh", "-c", BOOT, "boot", folder, name, str(ROOT)]


def _source() -> bytes:
    """This source, with what Python has compiled of it."""
    out = [f"--exclude={name}" for name in ("docker/.env", "docker/gpu.env", "docker/tls")]
    files = [str(path.relative_to(ROOT)) for pattern in FILES for path in ROOT.glob(pattern)]
    return subprocess.run(["tar", "-c", *out, *SOURCES, *files], cwd=ROOT, capture_output=True, check=True).stdout
