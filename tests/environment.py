"""A pytest plugin, loaded before Django's settings: every test process gets a data folder of its own."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

for name in list(os.environ):
    # What the person has set for their own installation must not reach the tests.
    if name.startswith(("GRPO_", "CONTROLPLANE_", "REDIS_URL")) and name != "GRPO_TRAINER_PYTHON":
        del os.environ[name]

folder = tempfile.mkdtemp(prefix="grpo-test-")
os.environ["CONTROLPLANE_DATA"] = folder
atexit.register(shutil.rmtree, folder, ignore_errors=True)
