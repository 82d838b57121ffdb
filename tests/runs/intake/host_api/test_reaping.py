"""How an attempt ends whose supervisor died after a limit was reached."""

from __future__ import annotations

import pytest

from runs.engine.models import Attempt
from runs.intake.host_api import reaping
from tests.runs.builders import FREE, an_attempt, event
from workers.contract.reports.lines import Receipt
from workers.contract.wire.documents import from_dict

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


@pytest.mark.parametrize(("how", "detail"), [("stopped", ""), (None, " It may not have saved:")])
def test_a_supervisor_lost_after_a_limit_leaves_its_reason(how: str | None, detail: str) -> None:
    attempt = an_attempt()
    rule = {"text": "It did not improve.", "reason": "early_stopped", "recommended": 1}
    lines = [event(1, "limit", **rule), *([event(2, "trained", how=how)] if how else [])]
    Attempt.objects.update(claimed_at="2026-01-01T00:00Z")
    attempt.refresh_from_db()
    receipt = from_dict(Receipt, FREE)
    reaping.reaped(attempt, lock_held=False, receipt=receipt, lines=lines, detail="It was gone.")
    attempt.refresh_from_db()
    assert (attempt.status, attempt.reason) == ("succeeded", "early_stopped")
    assert attempt.detail == f"It did not improve.{detail} It was gone."
