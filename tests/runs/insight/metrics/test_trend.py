"""A run's reward in at most forty points, for the list."""

from __future__ import annotations

import math
import re
import sys
from statistics import fmean

import pytest
from django.test import Client

from runs.engine import gain
from runs.engine.models import Attempt
from runs.engine.states import RunStatus
from runs.insight.metrics import folding, trend
from runs.intake.host_api import ingest, uploads
from tests.runs.builders import a_host, a_run, a_user, an_attempt, event, train

LARGEST = sys.float_info.max


def test_one_by_one_or_all_at_once_it_is_the_mean_of_equal_stretches(subtests: pytest.Subtests) -> None:
    for count in [0, 1, 39, 40, 41, 80, 81, 1000, 12_345]:
        with subtests.test(count=count):
            rewards = [(n * 37 % 101) / 7 for n in range(count)]
            points, of = trend.add_rewards([], 0, rewards)
            assert of == count
            assert len(points) <= trend.MAX_POINTS
            width = next(2**k for k in range(30) if count <= trend.MAX_POINTS * 2**k)
            assert points == pytest.approx([fmean(rewards[at : at + width]) for at in range(0, count, width)])


def test_the_largest_numbers_have_a_mean() -> None:
    points, _ = trend.add_rewards([], 0, [1.7e308] * 100)
    assert all(math.isfinite(point) for point in points)


def test_a_gain_counts_if_it_is_more_than_chance() -> None:
    noisy = [0.1, 0.5] * 5
    assert not gain.is_significant([*noisy, *(each + 0.03 for each in noisy)])
    assert gain.is_significant([*noisy, *(each + 0.4 for each in noisy)])
    assert gain.is_significant([-LARGEST] * 10 + [LARGEST] * 10)
    assert not gain.is_significant([0.0] * 20)
    assert not gain.is_significant([1.0])


def test_points_that_no_number_goes_with_are_begun_anew() -> None:
    assert trend.add_rewards([1.0, 2.0], 0, [3.0]) == ([3.0], 1)


@pytest.mark.django_db
@pytest.mark.usefixtures("sent")
def test_the_trend_of_a_run_follows_its_lines_and_a_resume_cuts_it() -> None:
    run = a_run(host=a_host())
    first = an_attempt(RunStatus.RUNNING, run=run)
    for seq in range(1, 1501, 50):
        ingest.accept(first, [train(n, reward=float(n)) for n in range(seq, seq + 50)])
    folding.fold_all()
    run.refresh_from_db()
    assert (len(run.trend), run.trend_of) == (24, 1500)
    assert run.trend[0] == pytest.approx(32.5)
    second = Attempt.objects.create(id=f"{run.pk}-2", run=run, number=2, status="failed", first_seq=1501, last_seq=1500)
    ingest.accept(second, [event(1501, "training", max_steps=99, step=20), train(1502, step=21, reward=7.0)])
    run.refresh_from_db()
    assert run.trend == [*map(float, range(1, 21)), 7.0]
    ingest.accept(second, [train(1503, step=22, reward=8.0), train(1504, step=23, kl=8.0)])
    run.refresh_from_db()
    assert (run.trend[-2:], run.trend_of) == ([7.0, 8.0], 22)


@pytest.mark.django_db
@pytest.mark.usefixtures("sent")
def test_the_gain_is_of_ten_steps_at_each_end_and_the_same_on_the_list_and_the_run_page(client: Client) -> None:
    attempt = an_attempt(RunStatus.RUNNING)
    # Rises within the first and the last ten steps of 300; in forty points of eight steps each, most is averaged away.
    for seq in range(1, 301, 50):
        lines = [train(n, step=n, reward=0.0 if n <= 10 else 0.9 if n > 290 else 0.4) for n in range(seq, seq + 50)]
        ingest.accept(attempt, lines)
    client.force_login(a_user())
    for address in ("/runs/", f"/runs/{attempt.run_id}/"):
        page = client.get(address).content.decode()
        assert re.search(r"minus mean of the first 10\">\+0\.90<", page), address


def test_a_run_of_eleven_steps_has_no_gain_yet_and_one_of_twelve_that_of_its_halves() -> None:
    assert gain.gain([0.0] * 11) is None
    assert gain.gain([0.0] * 6 + [0.5] * 6) == pytest.approx(0.5)


@pytest.mark.django_db
@pytest.mark.usefixtures("sent")
def test_rewards_whose_sum_no_float_holds_leave_the_pages_and_the_store_as_they_are(client: Client) -> None:
    attempt = an_attempt(RunStatus.RUNNING)
    largest = {"reward": LARGEST, "step_time": LARGEST}
    ingest.accept(attempt, [train(seq, **largest) for seq in range(1, 101)])
    rebuilt = trend.rebuilt_columns(attempt.run)
    assert (rebuilt["trend"], rebuilt["trend_of"], gain.gain(rebuilt["reward_ends"])) == ([LARGEST] * 25, 100, 0.0)
    told = [{"text": "x", "reward": reward} for reward in (LARGEST, LARGEST, -LARGEST)]
    uploads.samples(attempt, 1, [{"step": 1, "row": 1, "completions": told[:2]}, {"step": 1, "completions": told}])
    assert attempt.run.samples.first().reward_mean == LARGEST
    client.force_login(a_user())
    for address in ("/runs/", f"/runs/{attempt.run_id}/", f"/runs/{attempt.run_id}/completions/"):
        assert client.get(address).status_code == 200
