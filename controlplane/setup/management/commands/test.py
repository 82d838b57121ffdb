"""`manage.py test [--all | --changed [REV]] [--postgres] [pytest arguments]`: runs tests, in parallel unless paths are
given."""

import os
import shutil
import subprocess
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from controlplane.setup.serving.processes import BASE_DIR

CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")

POSTGRES = "--postgres"
ON_POSTGRES = ("-p", "tests.on_postgres", "-m", "not (processes or browser or trainer or gpu)")
"""Arguments for PostgreSQL. They exclude tests that start processes, because these choose their own database."""
DEFAULT_ARGUMENTS = ("--durations=10", "-ra")
BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder")
OPTIONS_WITH_VALUES = ("-k", "-m", "-p", "-o", "-W", "--ways", "--changed", "--deselect", "--ignore", "--junitxml")
OPTIONAL_PACKAGES = ("deepspeed", "ninja", "bitsandbytes")


class Command(BaseCommand):
    help = (
        "Run the fast tests and the most important end-to-end tests (--all: everything, --changed [REV]: what a change "
        "affects, --postgres: on PostgreSQL). Arguments go to pytest: manage.py test tests/runs -k ingest"
    )
    requires_system_checks: list[str] = []

    def run_from_argv(self, argv: list[str]) -> None:
        # Everything after `test`, options included, is for pytest: Django's parser must not see it.
        if "--help" in argv[2:]:
            super().run_from_argv(argv)
        else:
            self.handle(arguments=argv[2:])

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("arguments", nargs="*", help="pytest's own arguments")

    def handle(self, *args: Any, **options: Any) -> None:
        arguments: list[str] = options["arguments"]
        self._report_missing()
        # A separate process: pytest must set up the environment before Django's settings are read.
        command = [sys.executable, "-m", "pytest", *pytest_arguments(arguments)]
        environment = dict(os.environ)
        # Tests start hundreds of processes. Without stored bytecode, each one would compile all the modules it imports.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        result = subprocess.run(command, cwd=BASE_DIR, env=environment)
        sys.exit(result.returncode)

    def _report_missing(self) -> None:
        if not any(map(shutil.which, CHROMIUMS)):
            self.stdout.write("No Chromium on PATH: browser tests are skipped (to run them: apt-get install chromium).")
        if not os.environ.get("GRPO_TRAINER_PYTHON"):
            self.stdout.write("No trainer environment: trainer tests are skipped.")
        elif missing := _missing_packages(os.environ["GRPO_TRAINER_PYTHON"]):
            self.stdout.write(f"Not in the trainer's environment: {', '.join(missing)}. Their tests are skipped.")
        self.stdout.flush()


def pytest_arguments(arguments_given: list[str]) -> list[str]:
    """Return pytest's arguments, which run tests in parallel unless paths or a number of workers are given."""
    arguments = [argument for argument in arguments_given if argument != POSTGRES]
    before = ON_POSTGRES if POSTGRES in arguments_given else ()
    named_workers = any(argument.startswith(("-n", "--numprocesses", "--version")) for argument in arguments)
    parallel = () if _names_paths(arguments) or named_workers else (f"-n{workers()}", *BY_FILE)
    return [*before, *parallel, *(arguments or DEFAULT_ARGUMENTS)]


def workers() -> int:
    """Return the number of test workers: three on two cores, because many tests mostly wait for processes."""
    return max(2, (os.cpu_count() or 1) * 3 // 2)


def _names_paths(arguments: list[str]) -> bool:
    before = ["", *arguments]
    return any(
        not argument.startswith("-")
        and option not in OPTIONS_WITH_VALUES
        and (BASE_DIR / argument.partition("::")[0]).exists()
        for option, argument in zip(before, arguments, strict=False)
    )


def _missing_packages(python: str) -> list[str]:
    code = f"import importlib.util as u; print(*(n for n in {OPTIONAL_PACKAGES} if u.find_spec(n) is None))"
    try:
        return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.split()
    except OSError:  # no such interpreter: the trainer's tests report it
        return []
