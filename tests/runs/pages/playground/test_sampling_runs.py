"""The completions of learnability checks and evaluations, in the playground and in the replay."""

from __future__ import annotations

from typing import Any

import pytest

from runs.engine.models import Run
from runs.pages.playground import replay_source
from tests.controlplane.people import operator
from tests.runs.pages.playground.test_replay_pages import a_better_one, replayed
from tests.runs.pages.playground.test_sources import a_stored_run, sample
from workers.contract.run.evaluation import EVALUATION
from workers.contract.run.learnability import CHECK

pytestmark = pytest.mark.django_db

KINDS = [(CHECK, "train", "learnability check"), (EVALUATION, "eval", "evaluation")]


def a_sampling_run(kind: str, mode: str) -> Run:
    lines: list[dict[str, Any]] = [a_better_one(1, row) | {"mode": mode} for row in range(3)]
    attempt = a_stored_run(*lines, name="sampled")
    Run.objects.filter(pk=attempt.run_id).update(kind=kind)
    attempt.run.refresh_from_db()
    return attempt.run


@pytest.mark.parametrize(("kind", "mode", "words"), KINDS)
def test_they_are_offered_as_what_they_are(kind, mode, words):
    run = a_sampling_run(kind, mode)
    label = f'<span class="tag">{words}</span>'
    for path, query in (
        ("/rewards/runs/", {}),
        ("/rewards/runs/", {"for": "replay"}),
        ("/rewards/sample/", {"from": "run", "run": run.pk}),
        ("/rewards/replay/", {"replay": run.pk}),
    ):
        assert label in operator().get(path, query).content.decode(), path
    assert "2 completions" in sample(**{"from": "run", "run": run.pk})


@pytest.mark.parametrize(("kind", "mode", "words"), KINDS)
def test_they_are_replayed_with_another_config(kind, mode, words):
    run = a_sampling_run(kind, mode)
    assert replay_source.replayable_groups(run).groups == 3
    assert "The order changes in 3 of 3 groups." in replayed(run.pk)


def test_a_trainings_own_evaluations_are_not_replayed_with_its_groups():
    attempt = a_stored_run(a_better_one(1), a_better_one(1) | {"mode": "eval"})
    assert 'class="tag"' not in operator().get("/rewards/runs/").content.decode()
    assert replay_source.replayable_groups(attempt.run).groups == 1
