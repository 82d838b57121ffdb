"""The unit tests of the pages' scripts, as one test of this suite."""

from __future__ import annotations

import pytest

from tests.js import node


def test_the_unit_tests_of_the_pages_scripts_pass() -> None:
    try:
        done = node.run_tests()
    except node.Missing as missing:
        pytest.skip(str(missing))
    assert done.returncode == 0, done.stdout + done.stderr
