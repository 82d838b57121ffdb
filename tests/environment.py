"""A pytest plugin, loaded before Django's settings: every test process gets a data folder of its own, and all of a run
one folder together."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from tests import migrated

for name in list(os.environ):
    # What the person has set for their own installation must not reach the tests.
    if name.startswith(("GRPO_", "CONTROLPLANE_", "REDIS_URL")) and name != "GRPO_TRAINER_PYTHON":
        del os.environ[name]

folder = tempfile.mkdtemp(prefix="grpo-test-")
os.environ["CONTROLPLANE_DATA"] = folder
atexit.register(shutil.rmtree, folder, ignore_errors=True)
if migrated.FOLDER not in os.environ:  # workers of this run inherit it
    os.environ[migrated.FOLDER] = shared = tempfile.mkdtemp(prefix="grpo-test-")
    atexit.register(shutil.rmtree, shared, ignore_errors=True)
