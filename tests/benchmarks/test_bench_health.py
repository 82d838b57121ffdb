"""`manage.py bench health`: its figures, of so few histories that only their shape means anything."""

from __future__ import annotations

import json
from io import StringIO

from django.core.management import call_command

SHARES = {"named", "misnamed", "one_alert", "healthy_at_most_one_alarm"}


def test_a_kind_of_illness_and_a_healthy_run_have_every_figure() -> None:
    said = StringIO()
    call_command("bench", "health", "--json", "--seeds=1", "--healthy=1", "--only=learns at rate 0", stdout=said)
    figures = json.loads(said.getvalue())
    assert all(0 <= figures[name] <= 1 for name in SHARES)
    assert figures["named"] == 1
    assert figures["delay_p50_steps"] >= 0
    assert figures["runs"] == {"ill": 1, "kinds": 1, "healthy": 1}
