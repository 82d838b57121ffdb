from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.platform.accounts.models import Secret
from tests.controlplane.catalogue.joining.conftest import shared_redis, tcp_redis  # noqa: F401  # fixtures
from tests.controlplane.platform.accounts.secret_rows import an_endpoint
from tests.fakes import fake_skypilot
from tests.fakes.fake_skypilot import SkyPilotServer
from tests.runs.engine.machines.engine import Engine


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    return Engine(tmp_path / "engine", monkeypatch)


@pytest.fixture
def sky(db: None) -> Iterator[SkyPilotServer]:
    """With the secret SKY that leads to it."""
    with fake_skypilot.running() as server:
        an_endpoint("SKY", fake_skypilot.TOKEN, kind=Secret.Kind.ENGINE, address=server.url, private_too=True)
        yield server
