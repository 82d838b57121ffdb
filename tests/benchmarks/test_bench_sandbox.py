"""`manage.py bench sandbox`: its figures, of so few evaluations that only their shape means anything."""

from __future__ import annotations

import json
import math
from io import StringIO

import pytest
from django.core.management import call_command

from tests.workers.sandbox.conftest import BACKENDS, open_or_skip

PROMISED = {"evaluations_per_s", "speedup_over_subprocess", "p99_ms", "pure_group_ms"}


@pytest.mark.processes
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_few_evaluations_have_every_figure(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_or_skip(backend).close()  # type: ignore[arg-type]
    monkeypatch.setattr("tests.benchmarks.pure_rewards.ROUNDS", 1)
    said = StringIO()
    small = ("--evaluations=12", "--chunk=6", "--at-once=2", "--at-once-busy=1", f"--backend={backend}")
    call_command("bench", "sandbox", "--json", *small, stdout=said)
    figures = json.loads(said.getvalue())
    assert figures["backend"] == backend
    assert all(math.isfinite(figures[name]) and figures[name] > 0 for name in PROMISED)
    assert (figures["at_once"], figures["busy"]["at_once"]) == (2, 1)
    assert figures["busy"]["speedup_over_subprocess"] > 0
