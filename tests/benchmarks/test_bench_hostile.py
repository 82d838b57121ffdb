"""`manage.py bench hostile`: no hostile request to a real web process ends in a server error."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command

from tests.benchmarks._attacks import ATTACKS


@pytest.mark.processes
def test_every_hostile_request_is_answered_or_refused() -> None:
    said = StringIO()
    call_command("bench", "hostile", "--json", "--at-once=1", "--rounds=1", stdout=said)
    figures = json.loads(said.getvalue())
    assert (figures["attacks"], figures["improper"]) == (len(ATTACKS), 0), figures["offenders"]
    assert figures["requests"] == len(ATTACKS)
