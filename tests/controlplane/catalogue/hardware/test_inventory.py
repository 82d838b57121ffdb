"""Numbers that hosts announce: those that no column holds are left out."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.catalogue.hardware.inventory import count, number


@pytest.mark.parametrize("value", [10**400, -(10**400), 2**53, float("nan"), float("inf"), True, "1", None])
def test_a_number_that_no_column_holds_is_none(value: Any) -> None:
    assert (number(value), count(value)) == (None, None)
