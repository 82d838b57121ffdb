"""`manage.py bench hostile`: no hostile request to a real web process ends in a server error."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tests.benchmarks._attacks import ATTACKS


@pytest.mark.processes
def test_every_hostile_request_is_answered_or_refused() -> None:
    said = StringIO()
    call_command("bench", "hostile", "--json", "--at-once=1", "--rounds=1", stdout=said)
    figures = json.loads(said.getvalue())
    assert (figures["attacks"], figures["improper"]) == (len(ATTACKS), 0), figures["offenders"]
    assert figures["requests"] == len(ATTACKS)


def test_an_unknown_attack_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(CommandError, match="No attack has “nothing like it” in its name") as caught:
        call_command("bench", "hostile", "--only=nothing like it")
    assert all(attack.name in str(caught.value) for attack in ATTACKS)
