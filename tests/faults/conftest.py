"""One product for the fault tests that can share it; each of them leaves it whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.harness import Product


@pytest.fixture(scope="package")
def shared() -> Iterator[Product]:
    with Product.running() as product:
        yield product


@pytest.fixture
def product(shared: Product) -> Iterator[Product]:
    """The shared product, with everything running before and after."""
    shared.healthy()
    yield shared
    shared.end_all()
    shared.healthy()
