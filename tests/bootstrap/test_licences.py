"""Every locked package has a licence under which people may use it as we do: installed unchanged from its index, beside
our code and never copied into it."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from controlplane.setup.bootstrap.__main__ import locked
from controlplane.setup.bootstrap.environments import GPU_LOCK, LOCKS, ROOT, TRAINER

GROUPS: dict[str, list[str]] = tomllib.loads(Path(__file__).with_name("licences.toml").read_text())
LICENCES = {name: licence for licence, names in GROUPS.items() for name in names}
PERMISSIVE = frozenset(
    {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CNRI-Python", "ISC", "MIT", "MIT-0"}
) | {"MIT-CMU", "OFL-1.1", "PSF-2.0", "Unlicense", "Zlib"}
LIBRARIES = frozenset({"LGPL-2.1-only", "LGPL-3.0-only", "MPL-2.0"})
"""Licences that bind whoever changes the library itself, which nobody here does."""
OF_NVIDIA = "LicenseRef-NVIDIA-Proprietary"
"""Licence of CUDA's libraries, which whoever has such a card may install and nobody may hand on."""
REPORT_LICENCES = """
import importlib.metadata, json
print(json.dumps({d.name: d.metadata["License-Expression"] for d in importlib.metadata.distributions()}))
"""


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def terms(licence: str) -> set[str]:
    """Return the licences that an SPDX expression names; an exception (WITH) only ever permits more."""
    return set(re.findall(r"[\w.-]+", re.sub(r" WITH [\w.-]+", "", licence))) - {"AND", "OR"}


def test_every_locked_package_has_a_licence_that_we_may_use(subtests: pytest.Subtests) -> None:
    used: set[str] = set()
    for lock in sorted(LOCKS.glob("*.lock")):
        names = {normalised(name) for name in locked(lock)}
        used |= names
        permitted = PERMISSIVE | LIBRARIES | ({OF_NVIDIA} if lock == GPU_LOCK else set())
        with subtests.test(lock.name):
            assert not names - LICENCES.keys(), "add their licences to tests/bootstrap/licences.toml"
            refused = {name: LICENCES[name] for name in names if not terms(LICENCES[name]) <= permitted}
            assert not refused
    assert not LICENCES.keys() - used, "no lock contains them"
    assert sum(map(len, GROUPS.values())) == len(LICENCES), "a package has two licences"


def test_the_licences_are_those_that_installed_packages_state(subtests: pytest.Subtests) -> None:
    here = {d.name: d.metadata["License-Expression"] for d in importlib.metadata.distributions()}
    environments = {"tests": here}
    if TRAINER.python.exists():
        output = subprocess.run([str(TRAINER.python), "-c", REPORT_LICENCES], capture_output=True, check=True).stdout
        environments["trainer"] = json.loads(output)
    for title, stated in environments.items():
        with subtests.test(title):
            known = {normalised(name): licence for name, licence in stated.items() if licence}
            known = {name: licence for name, licence in known.items() if name in LICENCES}
            assert len(known) > 20
            assert {name: LICENCES[name] for name in known} == known


@pytest.mark.parametrize("folder", ["frontend", "tests/js"])
def test_locked_scripts_have_a_hash_and_a_permissive_licence(folder: str) -> None:
    packages = json.loads((ROOT / folder / "package-lock.json").read_text())["packages"]
    locked_packages = [package for name, package in packages.items() if name]
    assert locked_packages
    for package in locked_packages:
        assert package["integrity"].startswith("sha512-")
        assert terms(package["license"]) <= PERMISSIVE
