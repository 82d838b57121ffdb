"""`manage.py bench gamed`: gamed runs are named, and healthy ones that look alike raise no alarm."""

from __future__ import annotations

from tests.benchmarks import gamed


def test_gamed_runs_are_named_and_healthy_ones_are_not() -> None:
    found = gamed.main(["--seeds=1", "--only=loophole|paid as style|judge at its top|brevity"])
    assert found["runs"] == {"gamed": 2, "healthy": 2}
    assert found["named"] == 1, found["offenders"]
    assert found["alarmed"] == 0, found["offenders"]
