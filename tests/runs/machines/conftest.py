from __future__ import annotations

from pathlib import Path

import pytest

from tests.controlplane.joining.conftest import shared_redis, tcp_redis  # noqa: F401  # fixtures
from tests.runs.machines.engine import Engine


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    return Engine(tmp_path / "engine", monkeypatch)
