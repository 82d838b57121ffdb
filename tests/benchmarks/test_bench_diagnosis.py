"""`manage.py bench diagnosis`: its figures, with a small log and each log in one noise."""

from __future__ import annotations

import json
from io import StringIO

from django.core.management import call_command


def test_it_tells_how_good_the_catalogue_is() -> None:
    said = StringIO()
    call_command("bench", "diagnosis", "--json", "--mib=1", "--noises=1", stdout=said)
    figures = json.loads(said.getvalue())
    assert figures["right_first_percent"] == 100
    assert figures["wrong_and_certain"] == 0
    assert figures["nothing_percent"] == 0
    assert figures["healthy"] >= 15
    assert figures["healthy_with_a_cause"] == 0
    assert figures["innocent_with_a_cause"] == 0
    assert figures["entries"] > 160
    assert 0 < figures["provoked"] < figures["fixtures"]
    assert figures["ms_per_100mb_log"] > 0
