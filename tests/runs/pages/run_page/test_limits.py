"""Limits on the run page: bars of what is used, words, and the checkpoint that a rule recommends."""

from __future__ import annotations

import pytest

from runs.engine import checkpoints
from runs.engine.models import Run
from runs.intake.host_api import ingest
from runs.pages.run_page import checkpoint_views, limits
from runs.pages.run_page.limits import LimitBar
from tests.controlplane.people import viewer
from tests.runs.builders import a_host, a_run, an_attempt, event, train
from workers.contract.run.limits import BeyondSpec, LimitsSpec, NoBetterSpec

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]
LIMITS = LimitsSpec(2.0, 1000, None, NoBetterSpec("eval_reward", 50), BeyondSpec("kl", 0.5, 5))


@pytest.fixture
def run() -> Run:
    attempt = an_attempt(run=a_run(host=a_host(), limits=LIMITS))
    rule = {"text": "It did not improve.", "reason": "early_stopped", "recommended": 12}
    used = {"limits/hours": 1.25, "limits/tokens": 400.0, "limits/no_better": 30.0, "limits/beyond": 0.0}
    saves = [event(n, "checkpoint", step=step, path=f"checkpoints/checkpoint-{step}") for n, step in ((2, 10), (3, 20))]
    system = event(4, "system", **used)
    ingest.accept(attempt, [train(1, 20), *saves, system, event(5, "limit", **rule)])
    return Run.objects.get()


def test_bars_show_what_is_used(run: Run) -> None:
    assert limits.bars(run, run.latest()) == [
        LimitBar("limits/hours", "Hours", 1.25, 2.0, "h"),
        LimitBar("limits/tokens", "Tokens", 400.0, 1000.0, ""),
        LimitBar("limits/no_better", "eval_reward without a new best", 30.0, 50.0, "steps"),
        LimitBar("limits/beyond", "kl above 0.5", 0.0, 5.0, "steps in a row"),
    ]
    page = viewer().get(f"/runs/{run.pk}/").content.decode()
    assert 'value="1.25" max="2.0"' in page
    assert "limits/" not in viewer().get(f"/runs/{run.pk}/charts/").content.decode()


def test_the_spec_says_them_in_words(run: Run) -> None:
    page = viewer().get(f"/runs/{run.pk}/spec/").content.decode()
    assert "The run ends after 2 hours." in page
    assert "The run ends when the metric eval_reward has not improved for 50 steps." in page


def test_the_checkpoint_nearest_to_the_best_step_is_recommended(run: Run) -> None:
    _, rows, _ = checkpoint_views._table(run, checkpoints.of_run(run))
    assert [row.checkpoint.step for row in rows if row.recommended] == [10]
    assert "recommended" in viewer().get(f"/runs/{run.pk}/checkpoints/").content.decode()
