"""What earlier attempts have used counts for a run's limits."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from runs.engine.models import Attempt, Run
from runs.engine.scheduling import launching, spending
from runs.engine.states import RunStatus
from tests.runs.builders import a_host, a_run, a_user, an_attempt
from workers.contract.run.limits import LimitsSpec, Spent
from workers.contract.run.spec import Placement
from workers.contract.wire.documents import to_dict

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


def a_stopped_run(hours: float, limits: LimitsSpec, gpus: tuple[int, ...] = (0, 1)) -> Run:
    run = a_run(host=a_host(), limits=limits)
    attempt = an_attempt(RunStatus.STOPPED, run=run)
    now = timezone.now()
    placement = to_dict(Placement("box", gpus=gpus, gpu_hour_price=2.5, currency="$"))
    Attempt.objects.filter(pk=attempt.pk).update(
        claimed_at=now - timedelta(hours=hours), ended_at=now, placement=placement
    )
    return run


def test_time_and_money_of_earlier_attempts_are_handed_to_the_next_one() -> None:
    run = a_stopped_run(1.5, LimitsSpec(hours=4.0))
    attempt = launching.resume(run, a_user())
    attempt.refresh_from_db()
    Host.objects.update(gpu_hour_price=9.0, currency="CHF")
    placed = spending.with_spending(attempt, Host.objects.get(), Placement("box"))
    assert placed.spent == Spent(pytest.approx(1.5), pytest.approx(7.5))
    assert (placed.gpu_hour_price, placed.currency) == (9.0, "CHF")


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (LimitsSpec(hours=1.5), "has used 1.5 of 1.5 hours"),
        (LimitsSpec(money=7.0), "has spent 7.50 of 7.00"),
        (LimitsSpec(tokens=900), "has used 1,000 of 900 tokens"),
    ],
)
def test_a_run_that_has_used_up_a_limit_is_not_resumed(limits: LimitsSpec, words: str) -> None:
    run = a_stopped_run(1.5, limits)
    Run.objects.update(last_metrics={"num_tokens": 1000})
    run.refresh_from_db()
    with pytest.raises(launching.NotResumable, match=words):
        launching.resume(run, a_user())
    assert Attempt.objects.count() == 1
