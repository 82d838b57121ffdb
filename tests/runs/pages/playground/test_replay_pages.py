"""The replay's page: which groups of a run are taken, and what is said of those that aren't."""

from __future__ import annotations

from typing import Any

import pytest

from runs.engine.models import Run
from runs.engine.records import SampleRow
from runs.pages.playground import replay_source, rescoring
from tests.controlplane.catalogue.rewards.test_pages import fields
from tests.controlplane.people import operator
from tests.datasets import ready_version
from tests.runs.builders import a_run
from tests.runs.pages.playground.test_sources import NASTY, a_line, a_stored_run

pytestmark = pytest.mark.django_db

THINKS = "<think>a</think>4"


def a_better_one(step: int, row: int = 0) -> dict[str, Any]:
    """Of its two completions the run preferred the one without the tags."""
    line = a_line(step, row, THINKS, "4")
    line["completions"][0] |= {"reward": 0.0, "advantage": -0.7}
    line["completions"][1] |= {"reward": 1.0, "advantage": 0.7}
    return line


def replayed(run: Any, *functions: str, **sent: Any) -> str:
    values = {"replay": run, "groups": "64", "which": "spread", **sent}
    return operator().post("/rewards/replay/", fields(*(functions or ("think_tags",)), **values)).content.decode()


def steps_of(run: Run, which: str = "spread", step: int | None = None, count: int = 64) -> list[int]:
    return [group.step for group in replay_source.pick(run, which, step, count).groups]


def test_the_change_of_ranking_and_of_advantages_is_shown():
    attempt = a_stored_run(*[a_better_one(step) for step in (1, 2, 3)], name="old")
    page = replayed(attempt.run_id)
    assert "The order changes in 3 of 3 groups." in page
    assert "of 3</span>" in page  # pairs
    assert "↑1" in page
    assert "↓1" in page
    assert "6 completions of steps 1 to 3" in page
    assert "the run is still active" in page


def test_a_component_with_a_mistake_is_left_out_and_named():
    attempt = a_stored_run(a_better_one(1))
    page = replayed(attempt.run_id, "think_tags", "length", **{"c1-weight": "much"})
    assert "length_1: weight: Enter a number. It is ignored." in page
    assert '<td class="main c1"> <span class="swatch">' in page
    assert '<td class="main c2"><span class="swatch">' not in page
    assert "The order changes in 1 of 1 group." in page
    assert "nothing to score with" in replayed(attempt.run_id, "length", **{"c0-weight": ""})


def test_rows_come_from_the_runs_dataset_in_one_reading():
    version = ready_version("sums", [{"prompt": f"{n}+{n}", "answer": str(2 * n)} for n in range(3)])
    attempt = a_stored_run(*[a_line(1, n, str(2 * n), "77", answer="") for n in range(3)], version=version)
    page = replayed(attempt.run_id, "numeric_match")
    assert "that the run stored" not in page
    assert "The order changes in 3 of 3 groups." in page
    version.rows_path.unlink()
    SampleRow.objects.update(row=9)
    assert "3 groups are scored with only the prompt and the answer that the run stored." in replayed(
        attempt.run_id, "numeric_match"
    )


def test_groups_are_taken_in_whole_steps_spread_newest_or_of_one():
    run = a_stored_run(*[a_better_one(step, row) for step in range(1, 41) for row in range(4)]).run
    assert sorted(set(steps_of(run, count=16))) == [1, 14, 27, 40]
    assert steps_of(run, "newest", count=16) == sorted([37, 38, 39, 40] * 4)
    assert steps_of(run, "one", 7) == [7] * 4
    assert steps_of(run, "one", 99) == [40] * 4
    assert steps_of(run, "one", 0) == [1] * 4
    assert steps_of(run, count=1) == [40] * 4
    assert len(steps_of(run, count=256)) == 160


def test_evaluations_void_groups_and_groups_without_texts_are_not_taken():
    evaluation = a_line(1, 1, "4", "5", mode="eval")
    run = a_stored_run(a_better_one(1), evaluation, a_better_one(2), a_better_one(3), a_better_one(3, 5)).run
    SampleRow.objects.filter(step=2).update(superseded=True)
    SampleRow.objects.filter(step=3, row=5).update(size=0, data={"names": [], "figures": []})
    assert steps_of(run) == [1, 3]
    assert replay_source.pick(run, "newest", None, 64).gone == 1
    assert "1 group of these steps had no stored completions" in replayed(run.pk)


def test_more_than_a_page_can_take_is_cut_and_told(monkeypatch: pytest.MonkeyPatch):
    attempt = a_stored_run(*[a_better_one(1, row) for row in range(5)])
    monkeypatch.setattr(replay_source, "MAX_COMPLETIONS", 5)
    page = replayed(attempt.run_id)
    assert "4 completions of step" in page
    assert "the other groups of these steps are omitted" in page


def test_the_card_says_what_there_is_of_a_run():
    attempt = a_stored_run(a_better_one(3), a_better_one(5), name=NASTY)
    page = operator().get("/rewards/replay/", {"replay": attempt.run_id}).content.decode()
    assert "2 groups from steps 3 to 5 with stored completions" in page
    assert NASTY not in page
    SampleRow.objects.update(size=0)
    page = operator().get("/rewards/replay/", {"replay": attempt.run_id}).content.decode()
    assert "no longer stored" in page
    assert "data-go" not in page
    assert "This run has no completions" in operator().get("/rewards/replay/", {"replay": a_run().pk}).content.decode()


@pytest.mark.parametrize(("run", "said"), [("gone", "no longer exists"), ("", "Choose a run first"), ("\0", "exists")])
def test_a_run_that_has_gone_is_told(run: str, said: str):
    assert said in replayed(run)


def test_texts_that_have_gone_since_are_told():
    attempt = a_stored_run(a_better_one(1))
    SampleRow.objects.all().delete()
    assert "nothing to score again" in replayed(attempt.run_id)


def test_nonsense_in_its_fields_is_taken_for_not_said():
    attempt = a_stored_run(a_better_one(1))
    page = replayed(attempt.run_id, which="sideways", step="-3", groups="1e9", aggregation="max")
    assert "The order changes in 1 of 1 group." in page


def test_when_others_replay_the_page_says_so(monkeypatch: pytest.MonkeyPatch):
    attempt = a_stored_run(a_better_one(1))
    monkeypatch.setattr(rescoring, "WAIT_S", 0.01)
    for _ in range(rescoring.MAX_CONCURRENT):
        rescoring._slots.acquire()
    try:
        assert "Other replays are running" in replayed(attempt.run_id)
    finally:
        for _ in range(rescoring.MAX_CONCURRENT):
            rescoring._slots.release()
    assert "The order changes" in replayed(attempt.run_id)


def test_a_time_that_is_up_leaves_a_part_that_says_so(monkeypatch: pytest.MonkeyPatch):
    attempt = a_stored_run(*[a_better_one(step) for step in (1, 2, 3)])
    monkeypatch.setattr(rescoring, "SECONDS", 0.0)
    assert "scoring timed out after 1 of 3 groups" in replayed(attempt.run_id)


def test_what_a_run_wrote_is_text():
    line = a_better_one(1)
    line["completions"][0]["text"] += NASTY
    attempt = a_stored_run({**line, "prompt": NASTY})
    page = replayed(attempt.run_id)
    assert NASTY not in page
    assert "&lt;script&gt;" in page


def test_a_replay_reads_the_database_the_same_number_of_times_for_any_number_of_groups(
    django_assert_max_num_queries: Any,
):
    version = ready_version("sums", [{"prompt": f"{n}+{n}", "answer": str(2 * n)} for n in range(60)])
    attempt = a_stored_run(*[a_better_one(step, step) for step in range(1, 60)], version=version)
    client = operator()
    with django_assert_max_num_queries(14):
        client.post("/rewards/replay/", fields("think_tags", replay=attempt.run_id, groups="64", which="spread"))


@pytest.mark.parametrize("path", ["try", "replay"])
def test_an_operator_tries_no_code_that_no_admin_has_saved(path: str):
    attempt = a_stored_run(a_better_one(1))
    source = "def reward(completions, **columns):\n    return [0.5] * len(completions)\n"
    sent = fields("python", "think_tags", replay=attempt.run_id, completion=["a"], **{"c0-p_source": source})
    page = operator().post(f"/rewards/{path}/", sent).content.decode()
    assert "Only an admin can add or change code." in page
    assert "think_tags_1" in page


def test_two_components_of_one_name_are_told_and_the_first_counts():
    attempt = a_stored_run(a_better_one(1))
    page = replayed(attempt.run_id, "think_tags", "length", **{"c1-name": "think_tags_0"})
    assert "Another component has this name. It is ignored." in page
    assert "The order changes in 1 of 1 group." in page
