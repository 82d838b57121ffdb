"""Set-up of the right Python environment for manage.py on a bare machine, using only the standard library.

With nothing but python3 and pip, the package builds `.venv` (control plane and hosts), `.venv-train` (the trainer) and
`.venv-test` from the committed locks, and re-executes manage.py in the environment that the command needs. An active
environment that has the required packages is used unchanged. With CONTROLPLANE_BOOTSTRAP=off, for images and machines
without network access, any interpreter is used unchanged.
"""

import os
import sys
import time
from importlib.util import find_spec
from typing import NoReturn

from controlplane.setup.bootstrap.console import Failed, interruptible, say
from controlplane.setup.bootstrap.environments import BASE, TEST, TRAINER, build

WITH_TEST_TOOLS = frozenset({"test", "bench"})
"""Commands that need the test environment; benchmarks use the tests' browser and helpers."""
WITH_TRAINER = frozenset({"up", "test", "bench"})
"""Commands that install the trainer first; `demo` installs it later, while its page shows the progress."""
OPTIONAL_TRAINER = frozenset({"up"})

TRAINER_PYTHON = TRAINER.python
STARTED = "CONTROLPLANE_STARTED"
INSTALL_SECONDS = "CONTROLPLANE_INSTALL_SECONDS"
_BOOTSTRAPPED_VARIABLE = "CONTROLPLANE_BOOTSTRAPPED"


def ensure(argv: list[str]) -> None:
    """Return if this interpreter can run the command; otherwise re-execute manage.py in one that can."""
    command = argv[1] if len(argv) > 1 else ""
    os.environ.setdefault(STARTED, repr(time.time()))
    if os.environ.get("CONTROLPLANE_BOOTSTRAP") == "off" or os.environ.get(_BOOTSTRAPPED_VARIABLE) == sys.prefix:
        _set_trainer_python()
        return
    environment = TEST if command in WITH_TEST_TOOLS else BASE
    started_at = time.monotonic()
    try:
        with interruptible():
            is_virtual = sys.prefix != sys.base_prefix
            is_suitable = is_virtual and all(find_spec(module) is not None for module in environment.needs)
            if not is_suitable:
                build(environment)
            if command in WITH_TRAINER and "GRPO_TRAINER_PYTHON" not in os.environ:
                _build_trainer(optional=command in OPTIONAL_TRAINER)
    except Failed as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        _interrupted()
    os.environ[INSTALL_SECONDS] = repr(time.monotonic() - started_at)
    _set_trainer_python()
    if not is_suitable:
        os.environ[_BOOTSTRAPPED_VARIABLE] = str(environment.folder)
        os.execv(environment.python, [str(environment.python), *argv])  # noqa: S606


def ensure_trainer() -> None:
    """Build the trainer's environment for a host that has joined, unless it exists. Without it, launches wait."""
    try:
        if os.environ.get("CONTROLPLANE_BOOTSTRAP") != "off" and "GRPO_TRAINER_PYTHON" not in os.environ:
            with interruptible():
                _build_trainer(optional=True)
    except KeyboardInterrupt:
        _interrupted()
    _set_trainer_python()


def _interrupted() -> NoReturn:
    say("Interrupted. Nothing is broken. Run the same command again to continue.")
    sys.exit(130)


def _build_trainer(*, optional: bool) -> None:
    try:
        build(TRAINER)
    except Failed as error:
        if not optional:
            raise
        say(f"{error}\nContinuing without the trainer: pages work, and launches wait until it is installed.")


def _set_trainer_python() -> None:
    if TRAINER.is_built() or (TRAINER.is_foreign() and TRAINER.python.exists()):
        os.environ.setdefault("GRPO_TRAINER_PYTHON", str(TRAINER.python))
