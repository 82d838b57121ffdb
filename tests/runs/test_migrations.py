"""What migrations write into new columns of a database that has runs already."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from runs.host_api import ingest
from runs.models import PromptProgress, Run
from tests.runs.builders import train
from tests.runs.completions.test_stored_completions import filled

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


def filled_in(migration: str) -> None:
    apps = MigrationLoader(connection).project_state([("runs", migration)]).apps
    import_module(f"runs.migrations.{migration}").fill(apps, None)


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
