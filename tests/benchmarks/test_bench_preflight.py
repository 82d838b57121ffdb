"""`manage.py bench preflight`: its figures that need no product."""

from __future__ import annotations

import json
from io import StringIO

from django.core.management import call_command


def test_the_memory_model_is_within_ten_percent_of_every_measurement() -> None:
    said = StringIO()
    call_command("bench", "preflight", "--json", "--requests=0", stdout=said)
    figures = json.loads(said.getvalue())
    assert figures["estimate_error_max_percent"] <= 10
    assert figures["trainer_error_max_percent"] <= 10
    assert figures["estimate_error_median_percent"] <= 5
    assert figures["checks"] > 80
    assert figures["imports_round_trip"] is True
