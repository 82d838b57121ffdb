"""systemctl of a machine without systemd: our units are started as they say, Debian's by their init scripts.

Of a unit it knows User, WorkingDirectory, EnvironmentFile, ExecStartPre and ExecStart. Standard library only.
"""

from __future__ import annotations

import os
import pwd
import select
import shlex
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

UNITS = Path("/etc/systemd/system")
PYTHON = "/usr/local/bin/python3"
"""In place of the system's, if it is there: a test has the environments there already."""


def main(verb: str, *words: str) -> None:
    for name in (word.removesuffix(".service") for word in words if not word.startswith("-")):
        if not (UNITS / f"{name}.service").is_file():
            subprocess.run(["service", name, "start" if verb == "enable" else verb], check=True)
            continue
        if verb in ("stop", "restart"):
            stop(name)
        if verb in ("enable", "start", "restart"):
            start(name)


def start(name: str) -> None:
    unit = read(UNITS / f"{name}.service")
    user = pwd.getpwnam(unit["User"][0])
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": user.pw_dir, "USER": user.pw_name}
    for file in unit["EnvironmentFile"]:
        if Path(file.removeprefix("-")).exists():
            environment |= settings(Path(file.removeprefix("-")))
    with Path(f"/var/log/{name}.log").open("ab") as log:
        for number, command in enumerate([*unit["ExecStartPre"], *unit["ExecStart"]]):
            argv = shlex.split(command.replace("/usr/bin/python3", PYTHON) if Path(PYTHON).exists() else command)
            process = subprocess.Popen(
                ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--init-groups", *argv],
                cwd=unit["WorkingDirectory"][0], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
            if number < len(unit["ExecStartPre"]) and process.wait():
                sys.exit(f"{name} could not be started; /var/log/{name}.log says why.")
    Path(f"/run/{name}.pid").write_text(str(process.pid))


def stop(name: str) -> None:
    pid = int(Path(f"/run/{name}.pid").read_text())
    handle = os.pidfd_open(pid)
    signal.pidfd_send_signal(handle, signal.SIGTERM)
    with open(handle, "rb", buffering=0) as ended:
        select.select([ended], [], [], 60)


def read(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for line in unit.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[name].append(value)
    return found


def settings(file: Path) -> dict[str, str]:
    pairs = [line.partition("=") for line in file.read_text().splitlines() if "=" in line and not line.startswith("#")]
    return {name: "".join(shlex.split(value)) for name, _, value in pairs}


if __name__ == "__main__":
    main(*sys.argv[1:])
