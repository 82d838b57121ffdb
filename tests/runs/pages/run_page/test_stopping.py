"""What the head of the run page says while a run stops, beside the time it would have taken."""

from __future__ import annotations

import pytest
from django.utils import timezone

from runs.engine.models import Attempt, Run
from runs.intake.host_api.ingest import accept
from tests.controlplane.people import viewer
from tests.runs.builders import an_attempt, train

pytestmark = pytest.mark.django_db


def test_a_stop_is_said_once_and_no_time_is_left() -> None:
    attempt = an_attempt()
    Run.objects.filter(pk=attempt.run_id).update(max_steps=102)
    accept(attempt, [train(1, step_time=30.0)])
    page = viewer().get(f"/runs/{attempt.run_id}/").content.decode()
    assert ("asked to save and stop" in page, "min left" in page) == (False, True)
    Attempt.objects.filter(pk=attempt.pk).update(stop_mode="save", stop_requested_at=timezone.now())
    page = viewer().get(f"/runs/{attempt.run_id}/").content.decode()
    assert (page.count("asked to save and stop"), "min left" in page) == (1, False)
