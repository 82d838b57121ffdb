"""What migrations write into new columns of a database that has runs already."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

from runs.engine.alerts.models import AlertTarget
from runs.engine.models import HealthPreset, Run, SavedView
from runs.engine.records import PromptProgress, RunEvent
from runs.intake.host_api import ingest
from tests.runs.builders import a_user, train
from tests.runs.insight.completions.test_stored_completions import filled

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


def filled_in(migration: str, app: str = "runs") -> None:
    state = MigrationLoader(connection).project_state([(app, migration)])
    module = "runs.engine.alerts" if app == "alerting" else "runs.engine"
    import_module(f"{module}.migrations.{migration}").fill(state.apps, None)


def test_runs_of_before_get_the_ends_of_their_rewards() -> None:
    attempt = filled(steps=1, rows=1)
    ingest.accept(attempt, [train(n, reward=float(n)) for n in range(1, 50)])
    Run.objects.update(reward_ends=[])
    filled_in("0002_reward_ends")
    assert Run.objects.get().reward_ends == [*map(float, range(1, 11)), *map(float, range(40, 50))]


def test_prompts_of_before_get_their_last_visits() -> None:
    filled(steps=20, rows=8)

    def recent() -> list[Any]:
        prompts = PromptProgress.objects.order_by("row")
        return list(prompts.values_list("recent", "recent_completions", "recent_solved"))

    before = recent()
    PromptProgress.objects.update(recent=[], recent_completions=0, recent_solved=0)
    filled_in("0003_recent_visits")
    assert recent() == before


def test_the_level_watch_of_before_is_called_warning() -> None:
    def health(word: str) -> dict[str, Any]:
        finding = {"rule": "kl", "level": "note", "stood": word, "bound": 0.5, "bound_text": f"{word} above 0.5"}
        check = {"rule": "kl", "state": word, "bound": f"{word} above 0.5, bad above 2", "source": "watch it"}
        return {"verdict": word, "findings": [finding], "checks": [check], "memory": {"level": "watch"}}

    attempt, user = filled(steps=1, rows=1), a_user("ann")
    Run.objects.update(health=health("watch"))
    alert = RunEvent.objects.create(
        run=attempt.run, attempt=attempt, kind="alert", at=timezone.now(), data={"level": "watch"}
    )
    preset = HealthPreset.objects.create(name="mine", bounds={"kl": {"watch": 0.1, "bad": None, "source": "watch"}})
    view = SavedView.objects.create(owner=user, name="sick", query="health=watch&tag=watch")
    target = AlertTarget.objects.create(name="team", wants=["bad", "watch"])
    filled_in("0016_level_warning")
    filled_in("0003_level_warning", "alerting")
    for row in (alert, preset, view, target):
        row.refresh_from_db()
    assert Run.objects.get().health == health("warning")
    assert (alert.data, target.wants) == ({"level": "warning"}, ["bad", "warning"])
    assert preset.bounds == {"kl": {"warning": 0.1, "bad": None, "source": "watch"}}
    assert view.query == "health=warning&tag=watch"
