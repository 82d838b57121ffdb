from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.serving.embedded import BASE_DIR as ROOT

NAMES = "from controlplane import settings as s; print(s.SESSION_COOKIE_NAME, s.CSRF_COOKIE_NAME)"


def cookies_of(data: Path) -> set[str]:
    env = {**os.environ, "CONTROLPLANE_DATA": str(data)}
    done = subprocess.run([sys.executable, "-c", NAMES], env=env, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.processes
def test_two_installations_on_a_machine_have_cookies_of_their_own(tmp_path: Path) -> None:
    one, two = cookies_of(tmp_path / "one"), cookies_of(tmp_path / "two")
    assert len(one | two) == 4
    assert cookies_of(tmp_path / "one") == one
