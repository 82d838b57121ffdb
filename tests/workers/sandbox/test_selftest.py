"""The self-test: it finds the backend that holds, and a hole in one that doesn't."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from workers.sandbox import selftest, zygote_process
from workers.sandbox.outcomes import Backend, SandboxUnavailable

pytestmark = pytest.mark.processes


def test_the_program_says_what_holds_and_why_the_others_do_not() -> None:
    done = subprocess.run([sys.executable, "-m", "workers.sandbox", "--json"], cwd=ROOT, capture_output=True, text=True)
    told = json.loads(done.stdout)
    assert set(told) == {"backend", "tried"}
    assert list(told["tried"]) == ["bubblewrap", "landlock"]
    assert told["backend"] == next((name for name, why in told["tried"].items() if not why), None)
    assert done.returncode == (0 if told["backend"] else 1)


def test_a_backend_without_its_walls_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare process passes for none of the others."""
    start = zygote_process.start
    monkeypatch.setattr(zygote_process, "start", lambda backend, *others: start(Backend.BARE, *others))
    assert "files outside could be read" in selftest.lacks(Backend.LANDLOCK)


def test_where_none_holds_each_ones_lack_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "_cached", None)
    monkeypatch.setattr(selftest, "lacks", lambda backend: f"{backend} is refused here.")
    with pytest.raises(SandboxUnavailable, match=r"bubblewrap is refused here.*landlock is refused here"):
        selftest.best()
