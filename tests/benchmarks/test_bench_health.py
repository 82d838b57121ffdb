"""`manage.py bench health`: its figures, and what they must be on some of its kinds."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

from django.core.management import call_command

SHARES = {"named", "misnamed", "advice_right", "one_alert", "healthy_at_most_one_alarm"}


def figures(*options: str) -> dict[str, Any]:
    said = StringIO()
    call_command("bench", "health", "--json", "--seeds=1", *options, stdout=said)
    result: dict[str, Any] = json.loads(said.getvalue())
    return result


def test_a_kind_of_illness_and_a_healthy_run_have_every_figure() -> None:
    found = figures("--healthy=1", "--only=learns at rate 0")
    assert all(0 <= found[name] <= 1 for name in SHARES)
    assert found["named"] == 1
    assert found["delay_p50_steps"] >= 0
    assert found["runs"] == {"ill": 1, "kinds": 1, "healthy": 1}


def test_every_mismatch_and_every_changed_scorer_is_advised_rightly() -> None:
    kinds = (
        "never applied|no longer sent|other tokens|another template|the sign|leaves its|at once|identical from|one fam"
    )
    found = figures("--healthy=0", f"--only={kinds}")
    assert found["runs"]["ill"] == 13
    assert found["named"] == 1, found["offenders"]["named"]
    assert found["advice_right"] == 1, found["offenders"]["advice_right"]


def test_healthy_runs_that_look_odd_raise_no_alarm() -> None:
    found = figures("--healthy=0", "--only=noisy|spike|edge|caches|fail at first|many updates$")
    assert found["runs"]["healthy"] == 6
    assert found["healthy_bad_alarms"] == found["short_called_healthy"] == 0
    assert found["alarms_per_healthy_run"] == 0, found["offenders"]["healthy"]
