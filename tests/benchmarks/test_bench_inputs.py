"""`manage.py bench inputs`: its figures, and what it proposes for a folder's files."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

from django.core.management import call_command


def test_it_tells_how_many_files_are_read_right_at_first(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n')
    said = StringIO()
    call_command("bench", "inputs", "--json", "--folder", str(tmp_path), stdout=said)
    figures = json.loads(said.getvalue())
    assert figures["right_first_percent"] >= 90
    assert figures["silently_wrong"] == 0
    assert "'prompt': 'question'" in figures["offenders"]["given"][0]
