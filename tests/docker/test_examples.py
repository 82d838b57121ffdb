"""The examples of settings explain every setting that the code reads, and no other."""

from __future__ import annotations

import dataclasses
import re
import stat
import subprocess
from itertools import pairwise
from pathlib import Path

from controlplane.setup.bootstrap.environments import ROOT
from tests.docker.files import COMPOSE, DOCKER, ENTRY, EXAMPLES, names_in
from workers.settings import HostSettings, variable

CONTROL, HOST = EXAMPLES
READ = re.compile(r"""["'](CONTROLPLANE_[A-Z0-9_]+|REDIS_URL)["']""")
DEADLINE = re.compile(r"""_seconds\("([A-Z_]+)\"""")
NOT_FOR_PEOPLE = {"CONTROLPLANE_STARTED", "CONTROLPLANE_INSTALL_SECONDS", "CONTROLPLANE_BOOTSTRAPPED"}
"""What a start of manage.py tells its next one."""
OF_THE_HUB = {"HF_TOKEN", "HF_ENDPOINT"}
EXPLAINED = re.compile(r"^# ([A-Z][A-Z0-9_]+): ", re.MULTILINE)


def read_by_the_control_plane() -> set[str]:
    text = "\n".join(path.read_text() for room in ("controlplane", "runs") for path in (ROOT / room).rglob("*.py"))
    return {*READ.findall(text), *(f"CONTROLPLANE_{name}" for name in DEADLINE.findall(text))} - NOT_FOR_PEOPLE


def of_compose(path: Path) -> set[str]:
    """What a compose file reads, or sets for its containers."""
    text = path.read_text()
    return {
        *re.findall(r"\$\{(\w+)", text),
        *re.findall(r"^  +((?:CONTROLPLANE|REDIS|GRPO)_\w+): ", text, re.MULTILINE),
    }


def test_the_control_planes_example_has_every_setting() -> None:
    there = {*names_in(CONTROL), *EXPLAINED.findall(CONTROL.read_text())}
    read = read_by_the_control_plane() | OF_THE_HUB
    assert read - there == set()
    assert there - read - of_compose(COMPOSE[0]) == set()


def test_a_hosts_example_has_every_setting() -> None:
    fields = {variable(field.name) for field in dataclasses.fields(HostSettings)}
    there = set(names_in(HOST))
    assert fields - there == set()
    assert there - fields - of_compose(COMPOSE[1]) == {"HF_ENDPOINT", "HF_HOME"}


def test_defaults_are_those_of_the_code() -> None:
    text = "".join(line.removeprefix("#") for line in HOST.read_text().splitlines(True) if re.match(r"#?[A-Z]", line))
    given = dict(re.findall(r"^(GRPO_[A-Z_]+)=(.+)$", text, re.MULTILINE))
    of_the_image = {"GRPO_MODEL_ROOTS", "GRPO_RUNS_DIR", "GRPO_TRAINER_PYTHON", "GRPO_AT_STOP"}
    environment = {name: value for name, value in given.items() if name not in of_the_image}
    needed = {"GRPO_RUNS_DIR": "/data/runs", "GRPO_CONTROL_URL": "https://example.test"}
    assert HostSettings.from_env({**environment, **needed}) == HostSettings.from_env(needed)


def test_no_setting_is_there_twice_and_each_is_explained() -> None:
    for example in EXAMPLES:
        names = names_in(example)
        assert len(names) == len(set(names))
        lines = example.read_text().splitlines()
        bare = [
            line
            for before, line in pairwise(lines)
            if ENTRY.match(line) and not (before.startswith("# ") or ENTRY.match(before))
        ]
        assert bare == []


def test_the_setup_writes_passwords_and_a_certificate_and_changes_nothing_later(tmp_path: Path) -> None:
    for name in ("setup.sh", ".env.example"):
        (tmp_path / name).write_bytes((DOCKER / name).read_bytes())
    argv = ["sh", tmp_path / "setup.sh", "grpo.example.org"]
    assert subprocess.run(argv, capture_output=True).returncode == 0
    written = (tmp_path / ".env").read_text()
    assert "\nGRPO_DOMAIN=grpo.example.org\n" in written
    assert len(re.findall(r"^(?:POSTGRES|REDIS)_PASSWORD=[0-9a-f]{48}$", written, re.MULTILINE)) == 2
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600
    leaf, root = tmp_path / "tls" / "fullchain.pem", tmp_path / "tls" / "root.pem"
    verify = ["openssl", "verify", "-CAfile", root, "-verify_hostname", "grpo.example.org", leaf]
    assert subprocess.run(verify, capture_output=True).returncode == 0
    assert "was not changed" in subprocess.run(argv, capture_output=True, text=True).stdout
    assert (tmp_path / ".env").read_text() == written
