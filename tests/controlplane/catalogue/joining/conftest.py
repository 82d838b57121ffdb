from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import redis
from pytest_django import Settings

from controlplane.setup.serving.processes import Fleet
from tests.controlplane.catalogue.joining.shared_redis import program


@dataclass(frozen=True)
class Shared:
    url: str

    def client(self, url: str = "") -> redis.Redis:
        return redis.Redis.from_url(url or self.url, socket_timeout=5)


@pytest.fixture(scope="session")
def tcp_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    fleet = Fleet(report=print)
    server, url = program(tmp_path_factory.mktemp("redis"))
    fleet.start(server)
    fleet.wait_ready(["redis"])
    yield Shared(url)
    fleet.stop()


@pytest.fixture
def shared_redis(tcp_redis: Shared, settings: Settings) -> Shared:
    """The settings of a control plane whose hosts are on other machines."""
    settings.REDIS_URL, settings.HOST_REDIS_URL = tcp_redis.url, tcp_redis.url
    return tcp_redis
