"""Completions as they are stored: figures, prompts counted, resumes, what goes past the limit, and rows of before."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from runs.engine.models import Attempt
from runs.engine.records import PromptProgress, SampleRow, SampleStore
from runs.engine.states import RunStatus
from runs.insight.completions import group_retention, groups, progress, solving, text_retention
from runs.intake.host_api import ingest, uploads
from tests.controlplane.people import viewer
from tests.runs.builders import a_run, an_attempt, event, train

pytestmark = pytest.mark.django_db

PART = {"name": "right", "function": "numeric_match", "weight": 1.0}
LOOKS = {"name": "tags", "function": "think_tags", "weight": 0.5}
ENDLESS = {"name": "chars", "function": "unique_chars", "weight": 0.1}


def group(step: int, row: int = 7, scores: tuple[float | None, ...] = (1.0, 0.0), **more: Any) -> dict[str, Any]:
    told = [
        {"text": f"answer {i}", "tokens": 4, "ended": True, "rewards": {"format": s}, "reward": s, "advantage": 0.0}
        for i, s in enumerate(scores)
    ]
    return {"step": step, "row": row, "prompt": f"what is {row}?", "completions": told, **more}


def send(attempt: Attempt, *lines: dict[str, Any]) -> int:
    attempt.refresh_from_db()
    return uploads.samples(attempt, attempt.samples_ack + 1, lines)


def prompt(row: int = 7) -> dict[str, Any]:
    return PromptProgress.objects.values().get(row=row)


def test_a_reward_that_checks_the_answer_says_what_is_solved() -> None:
    rule = solving.of({"rewards": [LOOKS, PART, ENDLESS]})
    assert rule.sentence() == "A completion counts as solved when right is at least 0.9 (of 0 to 1)."
    assert rule.is_solved({"right": 1.0, "tags": 0.0})
    assert not rule.is_solved({"right": 0.0, "tags": 1.0})


def test_without_one_every_reward_that_has_a_top_counts() -> None:
    rule = solving.of({"rewards": [LOOKS, ENDLESS, {"name": "short", "function": "length", "weight": -1}]})
    assert [bound.reward for bound in rule.bounds] == ["tags"]
    assert "No reward checks" in rule.sentence()


def test_a_top_is_where_the_parameters_put_it() -> None:
    overlong = {"name": "short", "function": "overlong", "params": {"punishment": -10.0}}
    assert "at least -1 (of -10 to 0)" in solving.of({"rewards": [overlong]}).sentence()
    odd = {"name": "short", "function": "overlong", "params": {"punishment": "much"}}
    assert "at least -0.1 (of -1 to 0)" in solving.of({"rewards": [odd]}).sentence()


def test_a_reward_that_runs_the_tests_says_what_is_solved() -> None:
    rule = solving.of({"rewards": [LOOKS, {"name": "tests", "function": "tests_passed"}]})
    assert [bound.reward for bound in rule.bounds] == ["tests"]


@pytest.mark.parametrize(
    "spec", [{}, {"rewards": None}, {"rewards": [None, {"function": "gone"}]}, {"rewards": [ENDLESS]}]
)
def test_rewards_without_a_top_solve_nothing(spec: dict[str, Any]) -> None:
    assert not solving.of(spec).is_solved({"chars": 99.0})
    assert "no completion counts" in solving.of(spec).sentence()


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"completions": "none", "row": "7"},
        {"completions": [None, {"rewards": [1], "reward": True}], "row": True, "mode": 3},
        {
            "completions": [{"text": {"a": 1}, "tokens": "many", "reward": 10**400, "rewards": {"format": "x"}}],
            "row": 2**40,
        },
    ],
)
def test_a_group_of_any_shape_is_read(told: dict[str, Any]) -> None:
    rule = solving.of({"rewards": [LOOKS]})
    found = groups.figures(told, rule)
    assert (found.row, found.mode, found.solved, found.high) == (None, "train", 0, None)
    assert len(groups.completions(groups.without_texts(told))) == len(groups.completions(told)) == found.count


def test_a_prompt_is_counted_at_each_visit() -> None:
    attempt = an_attempt()
    send(attempt, group(1, scores=(0.0, 0.0)), group(2, row=8))
    send(attempt, group(5, scores=(1.0, 0.0)), group(9, scores=(1.0, 1.0), mode="eval"))
    assert prompt() | {"id": 0, "run_id": ""} == {
        "id": 0, "run_id": "", "row": 7, "visits": 3, "completions": 6, "solved": 3, "first_step": 1, "last_step": 9,
        "first_solved_step": 5, "first_mean": 0.0, "last_mean": 1.0, "best": 1.0, "gone": {},
            "recent": [[1, 2, 0], [5, 2, 1], [9, 2, 2]], "recent_completions": 6, "recent_solved": 3,
    }  # fmt: skip


def test_a_batch_of_64_groups_takes_as_few_queries_as_one_of_one(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    attempt = an_attempt()
    with django_assert_max_num_queries(14):
        uploads.samples(attempt, 1, [group(step, row=step % 40) for step in range(64)])
    with django_assert_max_num_queries(14):
        uploads.samples(attempt, 65, [group(step, row=step % 40) for step in range(64, 128)])
    assert sum(PromptProgress.objects.values_list("visits", flat=True)) == 128


def test_lines_sent_again_are_counted_once() -> None:
    attempt = an_attempt()
    send(attempt, group(1))
    assert uploads.samples(attempt, 1, [group(1), group(2)]) == 2
    assert prompt()["visits"] == 2
    assert SampleStore.objects.get().size == sum(SampleRow.objects.values_list("size", flat=True)) > 0


def resumed(step: int, *before: dict[str, Any], forget_to: int = 0) -> tuple[Attempt, Attempt]:
    first = an_attempt(RunStatus.RUNNING)
    ingest.accept(first, [train(1)])
    send(first, *before)
    if forget_to:
        group_retention.forget(first.run_id, limit=forget_to)
    Attempt.objects.filter(pk=first.pk).update(status="failed")
    second = Attempt.objects.create(
        id=f"{first.run_id}-2", run=first.run, number=2, status="starting", first_seq=2, last_seq=1
    )
    ingest.accept(second, [event(2, "training", max_steps=20, step=step)])
    return first, second


def test_a_resume_takes_back_what_was_counted_after_it() -> None:
    resumed(3, group(1, scores=(0.0, 0.0)), group(3), group(4, scores=(1.0, 1.0)), group(5, row=8))
    assert sorted(SampleRow.objects.filter(superseded=True).values_list("step", flat=True)) == [4, 5]
    assert (prompt()["visits"], prompt()["solved"], prompt()["last_step"]) == (2, 1, 3)
    assert not PromptProgress.objects.filter(row=8).exists()


def test_late_groups_of_an_earlier_attempt_count_only_up_to_the_resume() -> None:
    first, second = resumed(3, group(1))
    send(second, group(4))
    send(first, group(2), group(9))
    assert SampleRow.objects.get(superseded=True).step == 9
    assert (prompt()["visits"], prompt()["first_step"], prompt()["last_step"]) == (3, 1, 4)


def filled(steps: int, rows: int) -> Attempt:
    attempt = an_attempt()
    send(attempt, *[group(step, row=row, scores=(0.25, 1.0)) for step in range(steps) for row in range(rows)])
    return attempt


def test_past_the_limit_whole_prompts_and_the_newest_steps_keep_their_texts() -> None:
    attempt = filled(steps=20, rows=8)
    limit = SampleStore.objects.get().size // 2
    text_retention.thin(attempt.run_id, limit)
    store = SampleStore.objects.get()
    assert store.size == sum(SampleRow.objects.values_list("size", flat=True)) <= limit
    assert store.one_in > 1
    assert 0 < store.whole_from < 20
    for row in SampleRow.objects.all():
        whole = row.step >= store.whole_from or text_retention.keeps_text(row.row, store.one_in)
        assert (row.size > 0) == whole


def test_what_is_thinned_out_keeps_the_figures_of_each_completion() -> None:
    attempt = filled(steps=4, rows=1)
    before = [groups.completions(row.data) for row in SampleRow.objects.order_by("pk")]
    text_retention.thin(attempt.run_id, 1)
    after = [groups.completions(row.data) for row in SampleRow.objects.order_by("pk")]
    assert [one.text for one in after[0]] == [None, None]
    assert [one.text for one in after[-1]] == ["answer 0", "answer 1"]
    figures = [[(o.reward, o.rewards, o.advantage, o.tokens, o.end) for o in each] for each in (before[0], after[0])]
    assert figures[0] == figures[1]
    progress.recount(attempt.run_id, [0])
    assert prompt(0)["solved"] == 4


def test_a_run_below_the_limit_loses_nothing() -> None:
    filled(steps=3, rows=2)
    text_retention.thin_all()
    assert not SampleRow.objects.filter(size=0).exists()


def test_every_run_has_a_store_of_its_own() -> None:
    first, second = an_attempt(), an_attempt(run=a_run("second"))
    send(first, group(1))
    send(second, group(1))
    assert SampleStore.objects.count() == PromptProgress.objects.count() == 2


def test_a_round_ends_when_its_time_is_over_and_the_next_goes_on() -> None:
    attempt = an_attempt()
    send(attempt, *(group(step, row=step) for step in range(100)))
    text_retention.thin(attempt.run_id, limit=1, until=0.0)
    assert SampleRow.objects.filter(size=0).count() == text_retention.BATCH
    assert SampleStore.objects.get().whole_from == text_retention.BATCH
    text_retention.thin(attempt.run_id, limit=1)
    assert SampleRow.objects.filter(size__gt=0).count() == 1


def test_groups_that_can_t_be_thinned_leave_other_runs_their_turn() -> None:
    sick, well = an_attempt(run=a_run("sick")), an_attempt(run=a_run("well"))
    for attempt in (sick, well):
        send(attempt, group(1))
        SampleStore.objects.filter(run=attempt.run_id).update(size=text_retention.LIMIT + 1 + (attempt is sick))
    SampleRow.objects.update(superseded=True, row=None)
    SampleRow.objects.filter(attempt=sick).update(data=[])
    text_retention.thin_all(seconds=0.0)
    assert not SampleRow.objects.filter(size=0).exists()
    text_retention.thin_all()
    assert SampleRow.objects.get(size=0).attempt_id == well.pk


def test_past_a_limit_the_oldest_groups_go_and_their_prompts_stay_counted() -> None:
    attempt = filled(steps=20, rows=8)
    before = list(PromptProgress.objects.order_by("row").values_list("row", "visits", "solved", "first_step", "recent"))
    group_retention.forget(attempt.run_id, limit=100)
    store = SampleStore.objects.get()
    rows = list(SampleRow.objects.order_by("step", "pk"))
    assert store.completions == sum(row.completions for row in rows) == 94
    assert (store.groups_from, rows[0].step) == (14, 14)
    assert store.size == sum(row.size for row in rows)
    progress.recount(attempt.run_id, range(8))
    after = PromptProgress.objects.order_by("row").values_list("row", "visits", "solved", "first_step", "recent")
    assert list(after) == before


def test_a_resume_after_groups_were_forgotten_takes_back_only_what_it_made_void() -> None:
    resumed(3, *(group(step) for step in range(1, 6)), forget_to=8)
    assert list(SampleRow.objects.order_by("step").values_list("step", "superseded")) == [
        (3, False),
        (4, True),
        (5, True),
    ]
    told = prompt()
    assert (told["visits"], told["first_step"], told["last_step"], told["solved"]) == (3, 1, 3, 3)


def test_a_prompt_that_is_only_counted_is_left_when_a_resume_takes_the_rest() -> None:
    resumed(3, group(1), group(2, row=8), group(5), group(6, row=9), forget_to=5)
    assert SampleRow.objects.count() == 2
    assert list(PromptProgress.objects.order_by("row").values_list("row", "visits")) == [(7, 1), (8, 1)]


def test_the_newest_step_stays_however_large_it_is() -> None:
    attempt = an_attempt()
    send(attempt, *(group(1, row=row) for row in range(50)))
    group_retention.forget(attempt.run_id, limit=10)
    assert SampleRow.objects.count() == 50


def test_below_the_limit_nothing_is_forgotten_and_a_round_ends_when_its_time_is_over() -> None:
    attempt = an_attempt()
    send(attempt, *(group(step, row=step) for step in range(500)))
    group_retention.forget_all()
    assert SampleRow.objects.count() == 500
    group_retention.forget(attempt.run_id, limit=2, until=0.0)
    assert SampleRow.objects.count() == 500 - group_retention.BATCH


def test_the_tick_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = filled(steps=10, rows=2)
    monkeypatch.setattr(group_retention, "LIMIT", 20)
    SampleStore.objects.filter(pk=attempt.run_id).update(completions=40)
    group_retention.forget_all()
    assert SampleStore.objects.get().completions <= 20


def test_the_tab_says_what_is_kept() -> None:
    attempt = filled(steps=10, rows=2)
    address = f"/runs/{attempt.run_id}/completions/"
    assert "for the newest 1,000,000 completions, and texts" in viewer().get(address).content.decode()
    group_retention.forget(attempt.run_id, limit=20)
    assert "(in this run from step 5 on; prompts are still counted" in viewer().get(address).content.decode()
    text = viewer().get(f"/runs/{attempt.run_id}/prompts/0/").content.decode()
    assert "The oldest 6 of its visits are counted but not stored." in text
