from __future__ import annotations

from typing import Any

import pytest

from controlplane.catalogue.environments import saving
from controlplane.catalogue.environments.saving import EnvironmentComposition
from runs.engine.scheduling import leasing
from workers.contract.run.episodes import EpisodeLimits, PartSpec
from workers.contract.run.hardware import HardwareSpec

pytestmark = pytest.mark.django_db


def calculator(**params: Any) -> dict[str, Any]:
    return {"name": "calculator", "function": "calculator", "params": params}


def test_a_version_tells_a_run_its_parts_and_limits() -> None:
    version = saving.make("sums", EnvironmentComposition([calculator(digits=4)], {"turns": 3}))
    spec = version.episode_spec(0.5)
    assert (spec.name, spec.version, spec.turn_advantage_coef) == ("sums", 1, 0.5)
    assert spec.parts == (PartSpec("calculator", "calculator", {"digits": 4}),)
    assert spec.limits == EpisodeLimits(turns=3)


def test_saving_the_same_content_makes_no_version() -> None:
    version = saving.make("sums", EnvironmentComposition([calculator()]))
    again, created = saving.save(version.environment, EnvironmentComposition([calculator(digits=10)], {"turns": 6}))
    assert (again, created) == (version, False)


def test_saving_other_limits_makes_the_next_version() -> None:
    version = saving.make("sums", EnvironmentComposition([calculator()]))
    changed, created = saving.save(version.environment, EnvironmentComposition([calculator()], {"turns": 2}))
    assert created
    assert changed.number == 2
    assert version.episode_limits.turns == 6


def test_a_run_with_a_tool_that_runs_code_needs_a_sandbox() -> None:
    code, sums = PartSpec("python", "python_interpreter"), PartSpec("calculator", "calculator")
    assert leasing.need_of(HardwareSpec("cpu"), [sums, code]).sandbox
    assert not leasing.need_of(HardwareSpec("cpu"), [sums]).sandbox
