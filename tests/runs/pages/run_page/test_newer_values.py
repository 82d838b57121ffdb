"""Pages show rows that a newer version wrote, as after a downgrade: values unknown here are words, never a 500."""

from __future__ import annotations

import pytest
from django.utils import timezone

from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent
from runs.engine.states import RunStatus
from tests.controlplane.people import operator
from tests.runs.builders import a_host, a_run, an_attempt

pytestmark = pytest.mark.django_db
PAGES = ["/runs/", "/runs/{run}/", "/runs/{run}/head/", "/runs/{run}/events/", "/runs/{run}/checkpoints/", "/hardware/"]


@pytest.mark.parametrize(
    ("status", "newer"),
    [
        (RunStatus.FAILED, {"reason": "struck_by_lightning"}),
        (RunStatus.STOPPED, {"reason": "struck_by_lightning"}),
        (RunStatus.RUNNING, {"status": "hibernating"}),
        (RunStatus.RUNNING, {"stop_mode": "gently"}),
        (RunStatus.STARTING, {"phase": "dreaming"}),
        (RunStatus.STOPPING, {"phase": "dreaming"}),
        (RunStatus.QUEUED, {"waits_for": "GPU 0 of box", "waits_how": "mortgaged"}),
        (RunStatus.QUEUED, {"priority": 7}),
    ],
)
def test_a_value_that_only_a_newer_version_knows_breaks_no_page(status: str, newer: dict[str, object]) -> None:
    attempt = an_attempt(status, run=a_run(host=a_host()))
    Attempt.objects.filter(pk=attempt.pk).update(**newer)
    Run.objects.filter(pk=attempt.run_id).update(health={"verdict": "serene", "findings": []})
    client = operator()
    answers = {page: client.get(page.format(run=attempt.run_id)) for page in PAGES}
    assert {page: answer.status_code for page, answer in answers.items()} == dict.fromkeys(PAGES, 200)


def test_an_unknown_end_reason_is_named_in_the_head_and_the_timeline() -> None:
    attempt = an_attempt(RunStatus.FAILED)
    Attempt.objects.filter(pk=attempt.pk).update(reason="struck_by_lightning")
    data = {"to": "failed", "reason": "struck_by_lightning"}
    RunEvent.objects.create(run=attempt.run, attempt=attempt, kind="status", at=timezone.now(), data=data)
    for part in ("head", "events"):
        answer = operator().get(f"/runs/{attempt.run_id}/{part}/").content.decode()
        assert "This version doesn&#x27;t know the reason “struck by lightning”." in answer
