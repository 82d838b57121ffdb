from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from pytest_django import Settings

from controlplane.serving import valkey as valkey_server
from controlplane.serving.processes import Fleet, Program
from tests.workers.supervisor.servers import free_port

PASSWORD = "of the control plane"


@dataclass(frozen=True)
class TcpRedis:
    """A Redis with a password on loopback, as several machines share one."""

    url: str
    port: int

    def client(self, url: str = "") -> redis.Redis:
        return redis.Redis.from_url(url or self.url, socket_timeout=5)


def program(folder: Path, port: int) -> Program:
    argv = [str(valkey_server.find_server()), "--port", str(port), "--bind", "127.0.0.1", "--requirepass", PASSWORD]
    argv += ["--save", "", "--dir", str(folder)]
    url = f"redis://:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{port}/0"

    def ready() -> bool:
        try:
            return bool(redis.Redis.from_url(url).ping())
        except redis.ConnectionError:
            return False

    return Program(name="redis", argv=argv, env=None, log=folder / "redis.log", ready=ready)


@pytest.fixture(scope="session")
def tcp_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcpRedis]:
    fleet, port = Fleet(report=print), free_port()
    fleet.start(program(tmp_path_factory.mktemp("redis"), port))
    fleet.wait_ready(["redis"])
    yield TcpRedis(f"redis://:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{port}/0", port)
    fleet.stop()


@pytest.fixture
def shared_redis(tcp_redis: TcpRedis, settings: Settings) -> TcpRedis:
    """The settings of a control plane whose hosts are on other machines."""
    settings.REDIS_URL = tcp_redis.url
    settings.HOST_REDIS_URL = f"redis://127.0.0.1:{tcp_redis.port}/0"
    return tcp_redis
