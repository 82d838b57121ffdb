"""Provides manage.py with the right interpreter on a bare machine. The whole package uses only the standard library.

With nothing but python3 and pip, this builds `.venv` (control plane, host side), `.venv-train` (the trainer) and
`.venv-test` from the committed locks, and re-executes manage.py in the one that the command needs. An activated
environment that has the required packages is used unchanged. CONTROLPLANE_BOOTSTRAP=off uses any interpreter unchanged:
for images, and for machines without network access.
"""

import os
import sys
import time
from importlib.util import find_spec
from typing import NoReturn

from controlplane.setup.bootstrap.console import Failed, interruptible, say
from controlplane.setup.bootstrap.environments import BASE, TEST, TRAINER, build

WITH_TEST_TOOLS = frozenset({"test", "bench"})
"""Benchmarks use the tests' browser and helpers."""
WITH_TRAINER = frozenset({"up", "test", "bench"})
"""`demo` installs the trainer later, while its page shows the progress."""
OPTIONAL_TRAINER = frozenset({"up"})
"""Commands that also work without a trainer: launches then wait, everything else works."""

TRAINER_PYTHON = TRAINER.python
STARTED = "CONTROLPLANE_STARTED"
INSTALL_SECONDS = "CONTROLPLANE_INSTALL_SECONDS"
_INSIDE = "CONTROLPLANE_BOOTSTRAPPED"


def ensure(argv: list[str]) -> None:
    """Return if this interpreter can run the command; otherwise re-execute manage.py in one that can."""
    command = argv[1] if len(argv) > 1 else ""
    os.environ.setdefault(STARTED, repr(time.time()))
    if os.environ.get("CONTROLPLANE_BOOTSTRAP") == "off" or os.environ.get(_INSIDE) == sys.prefix:
        _point_at_trainer()
        return
    environment = TEST if command in WITH_TEST_TOOLS else BASE
    begin = time.monotonic()
    try:
        with interruptible():
            inside = sys.prefix != sys.base_prefix
            stay = inside and all(find_spec(module) is not None for module in environment.needs)
            if not stay:
                build(environment)
            if command in WITH_TRAINER and "GRPO_TRAINER_PYTHON" not in os.environ:
                _build_trainer(optional=command in OPTIONAL_TRAINER)
    except Failed as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        _interrupted()
    os.environ[INSTALL_SECONDS] = repr(time.monotonic() - begin)
    _point_at_trainer()
    if not stay:
        os.environ[_INSIDE] = str(environment.folder)
        os.execv(environment.python, [str(environment.python), *argv])  # noqa: S606


def ensure_trainer() -> None:
    """Build the trainer's environment for a host that has joined, unless there is one. Without it launches wait."""
    try:
        if os.environ.get("CONTROLPLANE_BOOTSTRAP") != "off" and "GRPO_TRAINER_PYTHON" not in os.environ:
            with interruptible():
                _build_trainer(optional=True)
    except KeyboardInterrupt:
        _interrupted()
    _point_at_trainer()


def _interrupted() -> NoReturn:
    say("Interrupted. Nothing is broken: the same command continues from here.")
    sys.exit(130)


def _build_trainer(*, optional: bool) -> None:
    try:
        build(TRAINER)
    except Failed as error:
        if not optional:
            raise
        say(f"{error}\nContinuing without the trainer: pages work, launches wait until it is installed.")


def _point_at_trainer() -> None:
    """Set the trainer's interpreter: only this package knows the folder's name."""
    if TRAINER.is_built() or (TRAINER.is_foreign() and TRAINER.python.exists()):
        os.environ.setdefault("GRPO_TRAINER_PYTHON", str(TRAINER.python))
