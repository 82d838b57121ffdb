"""vLLM's command line behind ours, with a stand-in for its package."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from workers.contract.stack.commands import KEEP_FROZEN
from workers.supervisor.commands import SOURCE_ROOT
from workers.trainer.configuration import imports
from workers.trainer.vllm import GUARD

MAIN = """
import gc, sys
collected = gc.isenabled()
def main():
    print("while imported", collected, "while running", gc.isenabled(), sys.argv)
"""


def test_vllm_gets_its_arguments_and_its_garbage_collector(tmp_path: Path) -> None:
    for folder in ("vllm", "vllm/entrypoints", "vllm/entrypoints/cli"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "vllm/entrypoints/cli/main.py").write_text(MAIN)
    command = [sys.executable, "-m", "workers.trainer.vllm", "serve", "/models/a", "--port", "1"]
    path = os.pathsep.join([str(SOURCE_ROOT), str(tmp_path)])
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    arguments = ["vllm", "serve", "/models/a", "--port", "1", "--middleware", GUARD]
    said = f"while imported False while running True {arguments}\n"
    assert (done.stdout, done.returncode) == (said, 0), done.stderr


def test_without_vllm_it_says_that_there_is_none(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "workers.trainer.vllm", "serve"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(SOURCE_ROOT)}, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "No module named 'vllm'" in done.stderr


def test_quick_imports_search_the_packages_once_and_freeze_what_they_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(KEEP_FROZEN, raising=False)
    searches = []
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: searches.append(1) or {"a": ["A"]})

    def fails() -> None:
        with imports.speed_up():
            assert not gc.isenabled()
            importlib.metadata.packages_distributions()
            importlib.metadata.packages_distributions()
            raise ImportError

    before = gc.get_freeze_count()
    try:
        with pytest.raises(ImportError):
            fails()
        assert gc.get_freeze_count() > before
        assert os.environ.pop(KEEP_FROZEN) == "1"
    finally:
        gc.unfreeze()
    assert gc.isenabled()
    assert searches == [1]
