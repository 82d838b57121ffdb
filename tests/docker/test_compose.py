"""The compose files: valid by the schema, and holding what a team relies on."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docker.files import COMPOSE, DOCKER, compose, set_up
from workers.host import shutdown
from workers.settings import HostSettings

CONTROL, GPU = COMPOSE
SERVICES: dict[str, dict[str, Any]] = {**compose(CONTROL)["services"], **compose(GPU)["services"]}


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_a_compose_file_fits_the_schema(path: Path, tmp_path: Path) -> None:
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("docker-compose, which carries the schema, is not on PATH (Debian: apt-get install docker-compose)")
    file = set_up(tmp_path / "docker") / path.name
    # A name for the project is newer than the schema of Debian's version.
    file.write_text(re.sub(r"^name: .*\n", "", file.read_text(), flags=re.MULTILINE))
    checked = subprocess.run([program, "-f", file, "config", "-q"], cwd=file.parent, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_passwords_are_asked_for_and_never_written_down() -> None:
    text = CONTROL.read_text()
    assert set(re.findall(r"\$\{(\w+):\?", text)) == {"GRPO_DOMAIN", "POSTGRES_PASSWORD", "REDIS_PASSWORD"}
    assert not re.search(r"PASSWORD: (?!\$\{)", text)


def test_only_the_proxy_can_be_reached_and_the_stores_reach_nothing() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["proxy"]
    assert [SERVICES[name]["networks"] for name in ("db", "redis")] == [["inside"], ["inside"]]
    assert compose(CONTROL)["networks"]["inside"] == {"internal": True}


def test_everything_that_stays_is_checked_and_started_again() -> None:
    in_their_image = {"web", "host"}
    for name, service in SERVICES.items():
        if name != "prepare":
            assert service["restart"] == "unless-stopped", name
            assert name in in_their_image or service["healthcheck"]["test"], name


def test_images_of_others_are_pinned_and_come_from_the_default_registry() -> None:
    others = [service["image"] for service in SERVICES.values() if "build" not in service]
    assert len(others) == 3
    assert all(re.fullmatch(r"(valkey/)?[a-z]+:\d+\.\d+(\.\d+)?-alpine", image) for image in others)


def test_volumes_have_names() -> None:
    for path in COMPOSE:
        file = compose(path)
        sources = {volume.split(":")[0] for service in file["services"].values() for volume in service["volumes"]}
        assert {source for source in sources if not source.startswith("./")} == set(file["volumes"])


def test_a_gpu_host_has_what_its_runs_need() -> None:
    host = SERVICES["host"]
    (device,) = host["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    assert host["init"] is True
    assert host["shm_size"].endswith(":-32g}")


def test_a_gpu_host_is_given_the_time_that_its_runs_need_to_save_and_end() -> None:
    minutes = re.fullmatch(r"(\d+)m", SERVICES["host"]["stop_grace_period"])
    assert minutes is not None
    settings = HostSettings(runs_dir=Path("/data/runs"), control_url="")
    assert int(minutes[1]) * 60 > shutdown.max_duration_s(settings, save=True)


def test_what_a_container_mounts_from_here_exists_or_is_made_by_the_setup() -> None:
    made = {"./tls"}  # by setup.sh, or by whoever has a certificate
    mounted = {v.split(":")[0] for service in SERVICES.values() for v in service["volumes"] if v.startswith("./")}
    assert [path for path in mounted - made if not (DOCKER / path).exists()] == []
