"""The card on the run's page: the verdict first, each finding with its bound and source, all that was looked at."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from runs.engine.models import Attempt, Run
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from runs.insight.health import tick as health
from tests.controlplane.people import operator, viewer
from tests.runs.builders import a_host, a_run, an_attempt
from tests.runs.insight.health.test_tick import write
from workers.contract.wire.names import EndReason

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


def card(attempt: Attempt, *, may: bool = False) -> str:
    page = (operator() if may else viewer()).get(reverse("run_head", args=[attempt.run_id])).content.decode()
    return page.partition('id="run-health"')[2].partition('id="run-dialogs"')[0]


def trained(steps: int, **values: float) -> Attempt:
    attempt = an_attempt(run=a_run(host=a_host(), grpo={"beta": 0.04}))
    write(attempt, steps, **values)
    health.tick(timezone.now())
    return attempt


def test_a_well_run_says_so_and_shows_what_was_looked_at() -> None:
    text = card(trained(40))
    assert "Health: healthy" in text
    assert "as of step 40" in text
    assert "checks needs attention." in text
    assert "KL drift" in text
    assert "warning above 0.5, bad above 2" in text
    assert "With one update per batch" in text


def test_a_sick_run_shows_value_bound_source_meaning_and_what_to_try() -> None:
    text = card(trained(60, kl=5.0))
    assert "Health: unhealthy" in text
    assert "The policy stays 5 nats away from the reference model" in text
    assert "Atropos example trainer" in text
    assert "Lower the learning rate" in text
    assert "since step 10" in text


def test_advice_leads_to_the_chart_the_completions_and_the_field() -> None:
    attempt = trained(60, kl=5.0)
    text = card(attempt)
    assert 'href="?tab=charts&amp;c.large=kl"' in text
    assert f'href="{reverse("clone", args=[attempt.run_id])}#id_learning_rate"' in text


def test_a_run_that_stands_still_leads_to_its_logs() -> None:
    attempt = trained(40)
    assert 'href="?tab=logs"' not in card(attempt)
    later = timezone.now() + timedelta(hours=1)
    Attempt.objects.filter(pk=attempt.pk).update(last_seen_at=later)
    health.tick(later)
    text = card(attempt)
    assert "No step has been completed for" in text
    assert 'href="?tab=logs"' in text


def test_a_failing_tool_leads_to_its_failed_calls() -> None:
    run = a_run(host=a_host())
    Run.objects.filter(pk=run.pk).update(spec={**run.spec, "episodes": {"name": "search", "version": 1}})
    attempt = an_attempt(run=Run.objects.get(pk=run.pk))
    write(attempt, 80, **{"tools/web search/calls": 2.0, "tools/web search/failed": 0.95})
    health.tick(timezone.now())
    text = card(attempt)
    assert "“web search” fails in 95% of its calls" in text
    assert "?tab=completions&amp;s.every=1&amp;s.error=any&amp;s.tool=web%20search" in text
    assert 'href="?tab=charts&amp;c.large=tool-failed"' in text


def test_a_consequence_stands_below_its_cause_without_advice_of_its_own() -> None:
    text = card(trained(60, kl=5.0, grad_norm=40.0, entropy=0.4))
    assert text.index("Large gradients") < text.index("Probably caused by “Large gradients”.") < text.index("nats away")
    assert "1 warning, 1 that probably follows" in text
    assert '<span class="level warning">warning</span>' in text


def test_before_the_first_steps_nothing_is_claimed() -> None:
    assert "not enough data" in card(trained(3))


def test_a_queued_run_has_no_card() -> None:
    assert "Health" not in card(an_attempt("queued"))


def test_only_operators_are_offered_another_preset() -> None:
    attempt = trained(40)
    assert "<select" in card(attempt, may=True)
    assert "<select" not in card(attempt)


def test_names_of_components_are_text() -> None:
    attempt = trained(60, kl=5.0)
    run = Run.objects.get(pk=attempt.run_id)
    run.health["findings"][0]["sentence"] = "<script>alert(1)</script>"
    run.save(update_fields=["health"])
    assert "<script>" not in card(attempt)


def test_a_run_that_failed_is_not_called_well() -> None:
    attempt = trained(40)
    move(attempt, RunStatus.FAILED, reason=EndReason.OOM, actor="test")
    text = card(attempt)
    assert "Health: healthy until it failed" in text
    assert 'class="drawer health unknown"' in text


def test_a_run_that_ended_too_early_awaits_no_more_data() -> None:
    attempt = trained(3)
    move(attempt, RunStatus.SUCCEEDED, reason=EndReason.COMPLETED, actor="test")
    text = card(attempt)
    assert "Health: too short to judge" in text
    assert "assessment starts" not in text
