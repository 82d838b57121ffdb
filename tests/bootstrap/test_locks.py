"""The locks say what pyproject.toml says, without asking the network."""

from __future__ import annotations

import re
import tomllib

import pytest

from controlplane.setup.bootstrap.__main__ import NOT_LOCKED, locked
from controlplane.setup.bootstrap.environments import BASE, GPU_LOCK, ON_DEMAND, ROOT, TEST, TRAINER
from workers.contract.stack.packages import GPU

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
GROUPS = PROJECT["dependency-groups"]
WANTED = [
    (BASE.lock, PROJECT["project"]["dependencies"]),
    (TEST.lock, [*PROJECT["project"]["dependencies"], *GROUPS["test"]]),
    (TRAINER.lock, GROUPS["train"]),
    (GPU_LOCK, [*GROUPS["train"], *GPU.requirements]),
    *((environment.lock, GROUPS[name]) for name, environment in ON_DEMAND.items()),
]


def test_a_lock_holds_every_requirement_at_its_pin(subtests: pytest.Subtests) -> None:
    for lock, requirements in WANTED:
        with subtests.test(lock=lock):
            have = locked(lock)
            for requirement in requirements:
                name, pin = re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?(?:==([^ ;]+))?", requirement).groups()  # type: ignore[union-attr]
                name = name.lower().replace("_", "-")
                assert name in have, f"{lock.name} lacks {name}: run python -m controlplane.setup.bootstrap"
                assert pin is None or pin in have[name], f"{lock.name} has {name} {have[name]}, not {pin}"


def test_a_lock_names_no_machine_and_hashes_everything(subtests: pytest.Subtests) -> None:
    for lock in [lock for lock, _ in WANTED]:
        with subtests.test(lock.name):
            text = lock.read_text()
            assert "://" not in text
            assert not re.search(r"^\s*-(-index|-extra|-find|i |f )", text, re.MULTILINE)
            blocks = re.split(r"\n(?=\S)", text.strip())
            assert all("--hash=sha256:" in block for block in blocks)


def test_the_tests_run_on_the_versions_that_are_shipped() -> None:
    shipped, tested = locked(BASE.lock), locked(TEST.lock)
    assert {name: tested[name] for name in shipped} == shipped


def test_what_differs_by_driver_stays_out_of_the_trainers_lock() -> None:
    for lock in (TRAINER.lock, *(environment.lock for environment in ON_DEMAND.values())):
        assert not [name for name in locked(lock) if NOT_LOCKED.match(name)]


def test_the_base_lock_serves_debians_own_python() -> None:
    # redis asks for it below 3.11.3; a lock made plainly on a newer 3.11 leaves it out.
    assert "async-timeout" in locked(BASE.lock)
