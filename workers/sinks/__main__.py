"""python -m workers.sinks FOLDER: send the metrics in an attempt's outbox to the sinks in its spec.json, until the
attempt has ended and everything is sent.

The supervisor starts this program alongside the trainer; afterwards, people can start it to send any remaining metrics.
It builds the environment with the sinks' packages if this host has none, and continues in that environment.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import workers
from workers.contract.run import sinks
from workers.contract.wire.processes import NICENESS, lower_priority
from workers.sinks.program import LIBRARY, run

SOURCE_ROOT = Path(workers.__file__).resolve().parent.parent
_INSIDE_VARIABLE = "GRPO_SINKS_INSIDE"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workers.sinks", description=__doc__)
    parser.add_argument("folder", type=Path, help="an attempt's folder with spec.json")
    folder = parser.parse_args(argv).folder.resolve()
    if os.environ.get(_INSIDE_VARIABLE) == "1":
        return run(folder, LIBRARY)
    lower_priority(NICENESS)
    python = os.environ.get(sinks.PYTHON) or _our_python()
    if shutil.which(python) is None:
        print(f"There is no interpreter {python} with the sinks' packages on this host.", file=sys.stderr)
        return 3
    os.environ[_INSIDE_VARIABLE] = "1"
    os.execv(python, [python, "-m", "workers.sinks", str(folder)])  # noqa: S606


def _our_python() -> str:
    python = SOURCE_ROOT / sinks.ENVIRONMENT / "bin" / "python"
    if not python.exists():
        # Environments made by uv have no pip, but the machine's own Python may have one.
        system_python = getattr(sys, "_base_executable", sys.executable)
        subprocess.run([system_python, "-m", "controlplane.setup.bootstrap.on_demand", sinks.GROUP], cwd=SOURCE_ROOT)
    return str(python)


if __name__ == "__main__":
    sys.exit(main())
