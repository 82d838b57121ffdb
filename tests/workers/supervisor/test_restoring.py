"""Attempts on one host that need the same checkpoint of the store."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from tests.fakes.fake_control import FakeControl
from tests.workers.supervisor.attempts import build_settings, build_spec
from workers.supervisor.inputs import restoring

FOLDER = "rsource12345/1/checkpoints/checkpoint-2"


def test_two_attempts_fetch_a_checkpoint_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control = FakeControl(b"")
    settings = build_settings(tmp_path, control)
    spec = build_spec(control, model=tmp_path / FOLDER)
    fetched: list[str] = []
    begun = threading.Event()

    def fetch(_: object, folder: str, target: Path, *rest: Any) -> None:
        begun.set()
        fetched.append(folder)
        target.with_name("checkpoint-2.part").mkdir()
        target.with_name("checkpoint-2.part").replace(target)

    monkeypatch.setattr(restoring, "_fetch_with_retries", fetch)
    (tmp_path / FOLDER).parent.mkdir(parents=True)
    with ThreadPoolExecutor() as attempts:
        with restoring._locked((tmp_path / FOLDER).parent):
            both = [attempts.submit(restoring.restore_missing, spec, settings, cast(Any, control)) for _ in range(2)]
            assert not begun.wait(0.2)
        for done in both:
            done.result(30)
    assert fetched == [FOLDER]
