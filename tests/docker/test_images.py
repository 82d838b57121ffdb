"""The images: small, without root, with every system package explained."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from controlplane.setup.bootstrap.__main__ import locked
from controlplane.setup.bootstrap.environments import BASE, GPU_LOCK, ROOT
from controlplane.setup.management.commands.serve import Command
from tests.docker.files import IMAGES, SERVICES_COMMANDS

WEB, GPU = IMAGES
LOCKS = "controlplane/setup/bootstrap/locks"


@pytest.fixture(params=IMAGES, ids=lambda path: path.stem)
def lines(request: pytest.FixtureRequest) -> list[str]:
    path: Path = request.param
    return path.read_text().splitlines()


def test_it_ends_as_a_user_without_a_name_that_could_be_root(lines: list[str]) -> None:
    assert [line for line in lines if line.startswith("USER ")] == ["USER 10001:10001"]


def test_its_base_is_pinned_and_from_the_default_registry(lines: list[str]) -> None:
    assert [line for line in lines if line.startswith("ARG BASE=")] == ["ARG BASE=debian:12.11-slim"]
    stages = {line.split()[-1] for line in lines if line.startswith("FROM ")}
    bases = {line.split()[1] for line in lines if line.startswith("FROM ")}
    assert bases - stages == {"${BASE}"}


def test_every_system_package_is_explained(lines: list[str]) -> None:
    """In the comment above the step that installs it."""
    for number, line in enumerate(lines):
        found = re.search(r"--no-install-recommends (.+) \\$", line)
        if found is None:
            continue
        above = [text for text in lines[number - 8 : number] if text.startswith("# ")]
        explained = {word.strip() for text in above for word in re.split(r"  |, ", text[2:])[:2]}
        assert set(found[1].split()) <= explained


def test_it_says_how_its_health_is_known(lines: list[str]) -> None:
    (check,) = [line for line in lines if line.startswith("HEALTHCHECK")]
    argv = json.loads(check.partition(" CMD ")[2])
    assert argv[:2] == ["python", "docker/healthcheck.py"]
    assert argv[2] in ("web", "host")


def test_the_web_image_has_no_torch_and_the_gpu_image_has_it_all() -> None:
    assert f"{LOCKS}/web.lock" in WEB.read_text()
    assert f"{LOCKS}/gpu.lock" not in WEB.read_text()
    assert not {"torch", "triton", "vllm"} & set(locked(BASE.lock))
    assert {"torch", "vllm", "trl"} <= set(locked(GPU_LOCK))


def test_what_the_images_copy_is_not_ignored() -> None:
    kept = {line[1:].rstrip("/") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {"manage.py", f"{LOCKS}/web.lock", f"{LOCKS}/gpu.lock", "docker/healthcheck.py"} <= kept
    assert {"controlplane", "runs", "workers", "frontend"} <= kept
    assert all((ROOT / path).exists() for path in kept)
    assert not {".git", ".data", "tests", "docker"} & kept


@pytest.mark.parametrize("arguments", SERVICES_COMMANDS, ids=" ".join)
def test_what_containers_start_is_a_command_of_ours(arguments: list[str]) -> None:
    parser = Command().create_parser("manage.py", "serve")
    assert arguments[0] == "serve"
    parser.parse_args(arguments[1:])


@pytest.mark.parametrize("script", ["prove.sh", "setup.sh", "start-redis.sh"])
def test_a_script_is_one(script: str) -> None:
    path = ROOT / "docker" / script
    assert path.stat().st_mode & 0o111
    shell = path.read_text().splitlines()[0].split("/")[-1].removeprefix("env ")
    assert subprocess.run([shell, "-n", path], capture_output=True).stderr == b""
