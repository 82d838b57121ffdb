"""How many rooms of the house a launch passes: packages with modules of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

from runs.engine.models import Run
from tests.controlplane.people import operator
from tests.runs.launch.new_run.launching_page import a_ready_host, sent

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[4]
MAX_ROOMS = 28


def test_a_launch_passes_few_rooms_from_the_form_to_its_run() -> None:
    a_ready_host()
    client, page, files = operator(), sent(use_lora="on", eval_rows="8", keep_best="reward"), set[str]()

    def note(frame: FrameType, event: str, arg: object) -> None:
        files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        answer = client.post("/runs/new/", page)
    finally:
        sys.setprofile(None)
    assert answer.status_code == 302
    assert Run.objects.count() == 1
    ours = [Path(name).relative_to(ROOT) for name in files if name.startswith(f"{ROOT}/")]
    rooms = {path.parent for path in ours if path.parts[0] in ("controlplane", "runs", "workers")}
    assert 10 < len(rooms) <= MAX_ROOMS, sorted(map(str, rooms))
