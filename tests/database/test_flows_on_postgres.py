"""Some of the tests of other rooms, run once more on a private PostgreSQL: another quarter in every third gate run.

`manage.py test --postgres` runs all of them there.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.postgres import missing

pytestmark = pytest.mark.processes

FLOWS = [
    "tests/database/test_hostile_values.py",
    "tests/controlplane/catalogue/hardware/test_profiles.py",
    "tests/runs/intake/host_api/test_ingest.py",
    "tests/runs/engine/scheduling/test_launching.py",
    "tests/runs/housekeeping/test_tick.py",
    "tests/runs/engine/scheduling/test_stopping.py",
    "tests/controlplane/catalogue/joining/test_joining.py",
    "tests/runs/api/test_runs.py",
    "tests/runs/engine/artifacts/test_copies.py",
    "tests/controlplane/catalogue/environments/test_versions.py",
    "tests/runs/housekeeping/test_expired.py",
    "tests/runs/pages/run_list/test_list.py",
    "tests/runs/engine/machines/test_requests.py",
    "tests/runs/engine/machines/test_machine_pages.py",
]


def test_the_flows_hold_on_postgresql() -> None:
    if reason := missing():
        pytest.skip(reason)
    assert [path for path in FLOWS if not (ROOT / path).exists()] == []
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "tests.on_postgres", *FLOWS]
    done = subprocess.run(argv, cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
