"""Tasks of reasoning-gym as the source of a dataset: the form, and the rows where its interpreter is built."""

from __future__ import annotations

import json

import pytest

from controlplane.catalogue.datasets import actions
from controlplane.catalogue.datasets.errors import ChildFailed, SourceRefused
from controlplane.catalogue.datasets.fetching.starting import fetch
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.datasets.sources import TasksSource
from controlplane.platform.accounts.models import User
from tests import datasets
from tests.controlplane.catalogue.datasets.steps import worked
from tests.workers.packages.built import lacks, tools_with
from workers.contract.run.dataset import row_for_rewards
from workers.rewards.library import LIBRARY
from workers.rewards.scoring import score

pytestmark = pytest.mark.django_db
GOOD = {"families": ["chain_sum", "spell_backward"], "rows": 5, "seed": 3, "level": 2}


@pytest.fixture
def page(client):
    client.force_login(User.objects.create_user("op", role="operator"))
    return client


def test_the_page_offers_every_family_with_what_it_asks(page):
    text = page.get("/datasets/tasks/").content.decode()
    assert "chain_sum: add and subtract whole numbers (11 levels)" in text
    assert "<label>arithmetic</label>" in text


def test_a_form_makes_a_version_that_waits_for_its_rows(page):
    page.post("/datasets/tasks/", GOOD)
    version = DatasetVersion.objects.get()
    assert (version.status, version.source_kind, version.dataset.name) == ("fetching", "tasks", "chain_sum")
    assert version.source == {**GOOD, "version": "0.1.25"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"families": []}, "Choose at least one family."),
        ({"families": ["no_such"]}, "no_such is not one of the available choices."),
        ({"level": 12}, "chain_sum has no difficulty level 12; its levels are: from 1 to 11."),
        ({"families": ["gcd", "rush_hour"]}, "Tasks of rush_hour have many right answers"),
        ({"rows": 1}, "at least one row each"),
        ({"rows": 10**9}, "At most 100000"),
        ({"seed": -1}, "At least 0"),
    ],
)
def test_bad_input_is_told_and_nothing_is_made(page, change, words):
    answer = page.post("/datasets/tasks/", GOOD | change)
    assert answer.status_code == 422
    assert words in answer.content.decode()
    assert not DatasetVersion.objects.exists()


def test_rows_are_shared_among_the_families():
    source = TasksSource(("gcd", "lcm", "bf"), 8)
    assert [recipe.rows for recipe in source.recipes] == [3, 3, 2]
    with pytest.raises(SourceRefused):
        TasksSource((), 8)


@pytest.mark.processes
def test_the_rows_of_several_families_come_in_turn():
    if why := lacks("reasoning_gym"):
        pytest.skip(why)
    version = actions.create_from_source(None, "tasks", TasksSource(("gcd", "lcm"), 5, seed=3))
    found = fetch(version, lambda: True)
    rows = [json.loads(line) for line in (version.folder / files.SOURCE).read_text().splitlines()]
    assert [row["family"] for row in rows] == ["gcd", "lcm", "gcd", "lcm", "gcd"]
    assert [row["reasoning_gym"]["index"] for row in rows] == [0, 0, 1, 1, 2]
    assert found["source"] == version.source


@pytest.mark.processes
def test_the_rows_are_mapped_as_they_are_proposed_and_their_answers_score_1():
    families = ("gcd", "arc_agi")  # the second's rows hold tuples
    with tools_with("reasoning_gym") as tools:
        version = actions.create_from_source(None, "tasks", TasksSource(families, 8, seed=3, level=1))
        worked(version)
        assert version.status == DatasetVersion.NEEDS_MAPPING, version.report
        mapping = ColumnMapping.from_dict(version.report["recognised"]["mapping"])
        assert (mapping.prompt, mapping.answer) == ("question", "answer")
        actions.request_import(version, mapping, share=0.0)
        assert worked(version).rows == 8
        rows = [row_for_rewards(row, row["metadata"], chat=False) for row in datasets.read(version.rows_path)]
        answers = [f"<answer>{row['answer']}</answer>" for row in rows]
        assert score(LIBRARY["reasoning_gym"], answers, rows, {}, tools).values == [1.0] * 8


@pytest.mark.processes
def test_tasks_with_many_right_answers_are_rows_without_one():
    with tools_with("reasoning_gym"):
        version = worked(actions.create_from_source(None, "tasks", TasksSource(("rush_hour",), 3)))
        mapping = ColumnMapping.from_dict(version.report["recognised"]["mapping"])
        assert (mapping.prompt, mapping.answer) == ("question", "")


@pytest.mark.processes
def test_without_the_interpreter_the_words_say_what_to_do(monkeypatch):
    monkeypatch.setenv("GRPO_ENVIRONMENTS_PYTHON", "/nowhere/python")
    version = actions.create_from_source(None, "tasks", TasksSource(("gcd",), 5))
    with pytest.raises(ChildFailed, match="/nowhere/python"):
        fetch(version, lambda: True)
