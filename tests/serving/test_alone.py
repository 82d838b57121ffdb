"""`serve prepare`, `serve web` and `serve worker` as containers start them, with their health checks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from controlplane.setup.serving import valkey
from controlplane.setup.serving.processes import BASE_DIR, Fleet
from tests.serving.command import Start
from tests.waiting import wait_until
from tests.workers.supervisor.servers import free_port

pytestmark = pytest.mark.processes


@pytest.fixture
def redis_url(data: Path) -> Iterator[str]:
    data.mkdir(exist_ok=True)
    fleet = Fleet(print)
    fleet.start(valkey.program(data))
    fleet.wait_ready(["valkey"])
    yield valkey.redis_url(valkey.socket_path(data))
    fleet.stop()


def healthy(part: str, data: Path) -> bool:
    argv = [sys.executable, BASE_DIR / "docker" / "healthcheck.py", part]
    return subprocess.run(argv, env={**os.environ, "CONTROLPLANE_DATA": str(data)}, capture_output=True).returncode == 0


def test_each_program_runs_alone_and_ends_when_told(data: Path, manage: Start, redis_url: str) -> None:
    prepare = manage("serve", "prepare", REDIS_URL=redis_url)
    assert prepare.process.wait(90) == 0, prepare.text
    port = str(free_port())
    web = manage("serve", "web", "--bind", "0.0.0.0", "--port", port, REDIS_URL=redis_url)
    worker = manage("serve", "worker", REDIS_URL=redis_url)
    assert not healthy("worker", data)
    wait_until(lambda: answers(f"http://127.0.0.1:{port}/healthz") or web.process.poll() is not None)
    assert web.process.poll() is None, web.text
    wait_until(lambda: healthy("worker", data))
    assert answers(f"http://127.0.0.1:{port}/readyz")
    assert "sign-in/once" not in web.text
    link = manage("link", REDIS_URL=redis_url, CONTROLPLANE_URL="https://grpo.example.org")
    assert link.process.wait(60) == 0
    assert link.text.startswith("https://grpo.example.org/sign-in/once/")
    for program in (web, worker):
        os.kill(program.process.pid, signal.SIGTERM)
        assert program.process.wait(60) in (0, -signal.SIGTERM), program.text  # uvicorn ends by the signal itself


def test_without_a_redis_it_says_what_is_missing(manage: Start) -> None:
    web = manage("serve", "web", "--port", str(free_port()), REDIS_URL="")
    assert web.process.wait(60) == 1
    assert "REDIS_URL is not set" in web.text


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
