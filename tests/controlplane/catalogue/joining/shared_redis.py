"""A Redis with a password on loopback, as several machines share one."""

from __future__ import annotations

from pathlib import Path

import redis

from controlplane.setup.serving import valkey
from controlplane.setup.serving.processes import ServedProgram
from tests.workers.supervisor.servers import free_port

PASSWORD = "of-the-control-plane"


def program(folder: Path) -> tuple[ServedProgram, str]:
    """And its address."""
    port = free_port()
    argv = [str(valkey.find_server()), "--port", str(port), "--bind", "127.0.0.1", "--requirepass", PASSWORD]
    argv += ["--save", "", "--dir", str(folder)]
    url = f"redis://:{PASSWORD}@127.0.0.1:{port}/0"

    def ready() -> bool:
        try:
            return bool(redis.Redis.from_url(url).ping())
        except redis.ConnectionError:
            return False

    return ServedProgram(name="redis", argv=argv, env=None, log=folder / "redis.log", ready=ready), url
