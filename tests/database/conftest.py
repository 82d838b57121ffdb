from __future__ import annotations

from collections.abc import Iterator

import pytest

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
