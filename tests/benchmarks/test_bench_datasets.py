"""`manage.py bench datasets`: its figures, of files so small that only their shape means anything."""

from __future__ import annotations

import json
import math
from io import StringIO

import pytest
from django.core.management import call_command

PROMISED = {"whole_check_mb_per_s", "whole_check_mb_per_processor_s", "peak_mb", "preview_ms"}


@pytest.mark.processes
def test_a_small_dataset_has_every_figure() -> None:
    said = StringIO()
    small = ("--megabytes=1", "--rounds=1", "--shown=2000", "--many=3000", "--parts=check,preview,many")
    call_command("bench", "datasets", "--json", *small, stdout=said)
    figures = json.loads(said.getvalue())
    assert set(figures) >= PROMISED
    assert all(math.isfinite(figures[name]) and figures[name] > 0 for name in PROMISED)
    assert (figures["shown_rows"], figures["many_rows"], figures["many_file_error"]) == (2000, 3000, None)
    assert figures["problems"] == {}
