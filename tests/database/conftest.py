from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.database.racing import Racers
from tests.postgres import Postgres, missing, running
from tests.runs.conftest import sent

__all__ = ["sent"]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A private PostgreSQL of this test session, or a skip that says why there is none."""
    if reason := missing():
        pytest.skip(reason)
    with running() as server:
        yield server


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def racers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Racers]:
    """Processes that work on one database; each module has its own."""
    name = request.module.__name__.rpartition(".")[2]
    url = request.getfixturevalue("postgres").url(name) if request.param == "postgresql" else ""
    racers = Racers(tmp_path_factory.mktemp(request.param), url)
    yield racers
    racers.close()
