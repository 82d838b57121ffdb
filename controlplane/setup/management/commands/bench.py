"""`manage.py bench [NAME] [--json] [options of the benchmark]`: runs the benchmarks in tests/benchmarks and reports the
machine's load with the results."""

import argparse
import importlib
import json
import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.setup.serving.processes import BASE_DIR

FOLDER = BASE_DIR / "tests" / "benchmarks"


class Command(BaseCommand):
    help = "Run all benchmarks, or the named one."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", help="one of: " + ", ".join(names()))
        parser.add_argument("--json", action="store_true", help="one JSON object for each benchmark")
        parser.add_argument("arguments", nargs=argparse.REMAINDER, help="options of the benchmark; --help lists them")

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["name"]
        if name is not None and name not in names():
            raise CommandError(f"There is no benchmark {name!r}. Benchmarks: {', '.join(names())}.")
        sys.path.insert(0, str(BASE_DIR))
        # Everything after the name belongs to the benchmark, except this option.
        arguments = [word for word in options["arguments"] if word not in ("--json", "--")]
        as_json = options["json"] or "--json" in options["arguments"]
        for benchmark in [name] if name else names():
            self._run(benchmark, arguments, as_json=as_json)

    def _run(self, name: str, arguments: list[str], *, as_json: bool) -> None:
        before = os.getloadavg()[0]
        results = importlib.import_module(f"tests.benchmarks.{modules()[name]}").main(arguments)
        machine = {"load_before": round(before, 2), "load_after": round(os.getloadavg()[0], 2), "cores": os.cpu_count()}
        results = _with_facts(results, machine)
        if as_json:
            self.stdout.write(json.dumps(_with_facts(results, {"benchmark": name})))
            return
        self.stdout.write(f"{name}")
        offenders: dict[str, list[str]] = results.pop("offenders", {})
        for key, value in results.items():
            self.stdout.write(f"  {key:<32} {value}")
            for offender in offenders.get(key, []):
                self.stdout.write(f"      {offender}")


def _with_facts(results: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """Return the results with facts about the run: under `about` if the results have that key, because their other keys
    are then objects, and otherwise at the top level."""
    if "about" in results:
        return {**results, "about": {**results["about"], **facts}}
    return {**results, **facts}


def names() -> list[str]:
    return sorted(modules())


def modules() -> dict[str, str]:
    """Return the benchmarks' modules by name. A module's trailing _ avoids the names of Python's own modules."""
    stems = [path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith(("_", "test_"))]
    return {stem.rstrip("_"): stem for stem in stems}
