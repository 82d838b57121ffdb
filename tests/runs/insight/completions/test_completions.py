"""The pages of completions: a step, the search, one group, a prompt through the run, the map, the export."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries, Settings

from runs.engine.models import Attempt, Run
from runs.engine.records import SampleRow
from runs.insight.completions import reading, text_retention
from runs.insight.completions.difficulty import prompts
from runs.insight.completions.filters import CompletionFilter
from runs.insight.completions.transcripts import turns
from runs.intake.host_api import uploads
from tests.controlplane.people import viewer
from tests.runs.builders import a_run, an_attempt

pytestmark = pytest.mark.django_db

REWARDS = [{"name": "right", "function": "numeric_match"}, {"name": "tags", "function": "think_tags"}]


@pytest.fixture(autouse=True)
def quick_passwords(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def attempt() -> Attempt:
    attempt = an_attempt()
    Run.objects.filter(pk=attempt.run_id).update(spec={**attempt.run.spec, "rewards": REWARDS})
    attempt.refresh_from_db()
    return attempt


def completion(text: str, right: float | None = 0.0, **more: Any) -> dict[str, Any]:
    rewards = {"right": right, "tags": 0.5}
    return {
        "text": text,
        "tokens": len(text),
        "ended": True,
        "rewards": rewards,
        "reward": right,
        "advantage": 0.1,
        **more,
    }


def send(attempt: Attempt, step: int, *told: dict[str, Any], row: int | None = 7, **more: Any) -> SampleRow:
    attempt.refresh_from_db()
    line = {"step": step, "row": row, "prompt": f"prompt {row}", "answer": "4", "completions": list(told), **more}
    uploads.samples(attempt, attempt.samples_ack + 1, [line])
    return SampleRow.objects.latest("pk")


def page(attempt: Attempt, part: str = "completions/", client: Client | None = None, **query: Any) -> str:
    answer = (client or viewer()).get(f"/runs/{attempt.run_id}/{part}", query)
    assert answer.status_code == 200
    return answer.content.decode()


def order(text: str, *words: str) -> list[str]:
    return sorted((word for word in words if word in text), key=text.index)


# --- a step ----------------------------------------------------------------------------------------------------


def test_a_row_says_everything_of_a_completion(attempt: Attempt) -> None:
    send(attempt, 3, completion("<b>four</b>", 1.0, advantage=-0.75, end="length", tokens=1234))
    text = page(attempt)
    for shown in ("&lt;b&gt;four&lt;/b&gt;", "1.00", "0.50", "−0.75", "1,234", ">length<", "Row 7", "1 of 1 solved"):
        assert shown in text
    assert "right is at least 0.9" in text


def test_texts_of_a_step_stand_in_the_order_that_was_asked_for(attempt: Attempt) -> None:
    send(attempt, 3, completion("middling", 0.5), completion("unscored", None), completion("low", 0.0))
    send(attempt, 3, completion("highest one", 1.0), row=8)
    words = ("middling", "unscored", ">low<", "highest one")
    assert order(page(attempt), *words) == ["middling", "unscored", ">low<", "highest one"]
    assert order(page(attempt, sort="-reward"), *words) == ["highest one", "middling", ">low<", "unscored"]
    assert order(page(attempt, sort="reward"), *words) == [">low<", "middling", "highest one", "unscored"]
    assert order(page(attempt, sort="-tokens"), *words)[0] == "highest one"


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"low": "0.4"}, ["half", "whole"]),
        ({"high": "0.5"}, ["none", "half"]),
        ({"by": "tags", "low": "0.6"}, []),
        ({"by": "right", "low": "0.5", "high": "0.5"}, ["half"]),
        ({"q": "HAL"}, ["half"]),
        ({"q": "Prompt 7"}, ["none", "half", "whole"]),
        ({"end": "length"}, ["whole"]),
        ({"low": "much", "end": "odd", "by": "gone", "sort": "x"}, ["none", "half", "whole"]),
    ],
)
def test_a_filter_leaves_what_it_says(attempt: Attempt, asked: dict[str, str], found: list[str]) -> None:
    send(attempt, 3, completion("none", 0.0), completion("half", 0.5), completion("whole", 1.0, end="length"))
    text = page(attempt, **asked).replace("<mark>", "").replace("</mark>", "")
    assert order(text, "none</a>", "half</a>", "whole</a>") == [f"{word}</a>" for word in found]


def test_the_filter_of_sources_offers_those_of_the_run_and_keeps_their_prompts(attempt: Attempt) -> None:
    send(attempt, 3, completion("sum", 1.0), row=1, sources=["arithmetic", "short"])
    send(attempt, 3, completion("angle", 0.0), row=2, sources=["geometry"])
    assert 'id="s-source"' not in page(attempt)
    Run.objects.filter(pk=attempt.run_id).update(last_metrics={"sources/geometry/reward": 0.0, "reward": 0.5})
    assert "<option>geometry</option>" in page(attempt)
    for every in ("", "1"):
        text = page(attempt, source="geometry", every=every)
        assert order(text, "sum</a>", "angle</a>") == ["angle</a>"]
        assert "<option selected>geometry</option>" in text
    assert "No completion matches" in page(attempt, source="geometry", low="0.5")


def test_a_search_marks_the_place_deep_in_a_long_text(attempt: Attempt) -> None:
    send(attempt, 3, completion("x" * 5000 + " needle " + "y" * 5000))
    text = page(attempt, q="NEEDLE")
    assert "x <mark>needle</mark> y" in text
    assert len(text) < 16_000


def test_a_long_step_comes_in_pages(attempt: Attempt) -> None:
    for row in range(40):
        send(attempt, 3, *[completion(f"a{row}-{i}") for i in range(4)], row=row)
    assert "page 1 of 3" in page(attempt)
    assert "a39-3" in page(attempt, page=3)
    assert "page 2 of 3" in page(attempt, page=2, sort="reward")


def test_a_page_takes_the_same_queries_however_many_groups_it_has(
    attempt: Attempt, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    client = viewer()
    for row in range(30):
        send(attempt, 3, completion("a"), row=row)
    with django_assert_max_num_queries(16):
        page(attempt, client=client)


def test_all_steps_are_searched_newest_first_and_further_on_asking(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(1, 121):
        send(attempt, step, completion(f"find-{step}-"), row=step)
    first = reading.search(attempt.run, CompletionFilter(every=True, q="find"))
    assert [group.step for group in first.groups] == list(range(120, 120 - reading.PAGE, -1))
    rest = reading.search(attempt.run, CompletionFilter(every=True, q="find", before=first.next_before))
    assert [group.step for group in rest.groups] == list(range(120 - reading.PAGE, 0, -1))
    assert rest.next_before == ""


def test_a_search_that_takes_too_long_says_how_far_it_came(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SEARCH_S", -1.0)
    for step in (1, 2, 3):
        send(attempt, step, completion("hay"))
    text = page(attempt, every=1, q="needle")
    assert "Searching steps before 3" in text
    assert "s.before=3." in text


# --- one group -------------------------------------------------------------------------------------------------


def test_a_group_shows_chat_and_tools_as_turns(attempt: Attempt) -> None:
    call = {"function": {"name": "calculator", "arguments": {"expression": "2+2"}}}
    said = [
        {"role": "assistant", "content": "<think>hm</think>let me see", "tool_calls": [call]},
        {"role": "tool", "name": "calculator", "content": "4"},
    ]
    told = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "<i>two and two?"}]
    row = send(attempt, 3, completion("4", turns=said), turns=told)
    text = page(attempt, f"completions/{row.pk}/")
    parts = (
        "System",
        "be brief",
        "&lt;i&gt;two and two?",
        "Thinking",
        "let me see",
        "calculator",
        "2+2",
        "Result",
    )
    assert order(text, *parts) == list(parts)


def test_a_group_of_another_run_is_not_there(attempt: Attempt) -> None:
    row = send(attempt, 3, completion("x"))
    other = an_attempt(run=a_run("other"))
    assert viewer().get(f"/runs/{other.run_id}/completions/{row.pk}/").status_code == 404


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("plain", [("assistant", "plain")]),
        ("   ", [("assistant", "   ")]),
        ("<think>a</think>b", [("thinking", "a"), ("assistant", "b")]),
        ("<think>never closed", [("thinking", "never closed")]),
        ("a</think>b", [("assistant", "a</think>b")]),
        ('<tool_call>{"name": "f", "arguments": {}}</tool_call>', [("call", "{}")]),
        ("<tool_call>{broken", [("call", "{broken")]),
        ("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyes", [("user", "hi"), ("assistant", "yes")]),
    ],
)
def test_a_text_with_the_marks_of_a_chat_is_turns(text: str, found: list[tuple[str, str]]) -> None:
    assert [(turn.role, turn.text) for turn in turns(text, None, "assistant")] == found


@pytest.mark.parametrize("odd", [[None], ["x"], [{}], [{"role": 3, "content": [1]}], [{"tool_calls": [None, {}, 3]}]])
def test_messages_of_any_shape_are_read(odd: list[Any]) -> None:
    assert isinstance(turns("x", odd, "assistant"), list)


def test_what_is_thinned_out_is_said_to_be(attempt: Attempt) -> None:
    for step in (1, 2, 3):
        send(attempt, step, completion("gone with time", 1.0, end="length"))
    text_retention.thin(attempt.run_id, 10)
    text = page(attempt, step=1)
    assert "not kept" in text
    assert "gone with time" not in text
    assert ">length<" in text
    assert "all texts are kept from step 3 on" in text
    assert "gone with time" in page(attempt, step=3)
    for row in SampleRow.objects.all():
        page(attempt, f"completions/{row.pk}/")
    assert "1.00" in page(attempt, "prompts/7/")


def test_the_tab_opens_at_the_newest_training_step_and_an_evaluation_has_no_verdict(attempt: Attempt) -> None:
    send(attempt, 4, completion("taught"), completion("taught"))
    send(attempt, 5, completion("tested"), completion("tested"), mode="eval")
    newest, last = page(attempt), page(attempt, step=5)
    assert ("taught" in newest, "tested" in newest, "s.step=5" in newest) == (True, False, True)
    assert ("no learning signal" in newest, "no learning signal" in last) == (True, False)
    assert ('data-newest="yes"' in newest, 'data-newest="yes"' in last) == (True, False)


def test_groups_that_nothing_was_trained_on_are_marked(attempt: Attempt) -> None:
    send(attempt, 4, completion("taught"), completion("taught", 1.0))
    row = send(attempt, 4, completion("left out"), completion("left out"), row=8, mode="replaced")
    for text in (page(attempt), page(attempt, f"completions/{row.pk}/")):
        assert "not trained on" in text
        assert "nothing learned" not in text
    assert "left out" in page(attempt)
    assert prompts(attempt.run).filter(row=8).exists(), "it tells how hard the prompt is"


# --- prompts ---------------------------------------------------------------------------------------------------


@pytest.fixture
def three(attempt: Attempt) -> Attempt:
    """Row 1 always solved, row 2 never, row 3 sometimes."""
    for step in (1, 2):
        send(attempt, step, completion("a", 1.0), completion("b", 1.0), row=1)
        send(attempt, step, completion("a", 0.0), completion("b", None), row=2)
        send(attempt, step, completion("a", step - 1.0), completion("b", 0.0), row=3)
    send(attempt, 2, completion("of no row"), row=None)
    return attempt


def test_the_map_tells_the_three_kinds_apart(three: Attempt) -> None:
    assert "1 of 3 prompts are solved sometimes, 1 never and 1 always" in words(three)
    cells = json.loads(page(three, "prompts/map.json"))
    assert cells == {"rows": [1, 2, 3], "solved": [100, 0, 25], "visits": [2, 2, 2]}


def test_what_is_solved_at_the_last_visits_counts_unless_the_whole_run_is_chosen(three: Attempt) -> None:
    for step in (3, 4, 5):
        send(three, step, completion("a", 1.0), completion("b", 1.0), row=3)
    assert "0 of 3 prompts are solved sometimes, 1 never and 2 always, over their last 3 visits" in words(three)
    assert "1 of 3 prompts are solved sometimes, 1 never and 1 always, over the whole run" in words(three, by="run")
    cells = [json.loads(page(three, "prompts/map.json", by=by)) for by in ("", "run")]
    assert [(each["solved"][2], each["visits"][2]) for each in cells] == [(100, 3), (70, 5)]
    exports = [json.loads(page(three, "prompts/export", by=by, **{"class": "always"})) for by in ("", "run")]
    assert [each["rows"] for each in exports] == [[1, 3], [1]]


def words(attempt: Attempt, **query: str) -> str:
    return " ".join(page(attempt, "prompts/", **query).split())


def test_prompts_are_listed_by_kind_and_order(three: Attempt) -> None:
    links = [f"s.prompt={row}" for row in (1, 2, 3)]
    assert order(page(three, "prompts/"), *links) == links
    assert order(page(three, "prompts/", sort="share"), *links) == [links[1], links[2], links[0]]
    assert order(page(three, "prompts/", **{"class": "sometimes,never"}), *links) == links[1:]
    assert order(page(three, "prompts/", visits=3), *links) == []


def test_the_export_is_the_rows_that_the_page_shows(three: Attempt) -> None:
    document = json.loads(page(three, "prompts/export", **{"class": "never,sometimes"}))
    assert document["rows"] == [2, 3]
    assert (document["dataset"], document["classes"]) == (str(three.run.dataset_version), ["never", "sometimes"])
    lines = page(three, "prompts/export", **{"as": "jsonl", "class": "always"}).splitlines()
    assert [json.loads(line)["row"] for line in lines] == [1]
    answer = viewer().get(f"/runs/{three.run_id}/prompts/export", {"class": "sometimes"})
    assert answer["Content-Disposition"] == f'attachment; filename="{three.run_id}-prompts-sometimes.json"'


def test_rewards_without_a_top_say_so_instead_of_a_map(three: Attempt) -> None:
    spec = {**three.run.spec, "rewards": [{"name": "chars", "function": "unique_chars"}]}
    Run.objects.filter(pk=three.run_id).update(spec=spec)
    text = page(three, "prompts/")
    assert "no completion counts as solved" in text
    assert "data-map" not in text


def test_a_prompt_is_followed_through_the_run(three: Attempt) -> None:
    text = page(three, "prompts/3/")
    assert "First solved at step 2. In total, 1 of 4 completions are solved" in text
    assert order(text, ">Step 2<", ">Step 1<") == [">Step 2<", ">Step 1<"]
    assert order(page(three, "prompts/3/", sort="oldest"), ">Step 2<", ">Step 1<") == [">Step 1<", ">Step 2<"]
    assert "Not solved yet in 2 visits" in page(three, "prompts/2/")


@pytest.mark.parametrize("row", ["99", str(2**40)])
def test_a_prompt_that_was_not_visited_is_not_there(three: Attempt, row: str) -> None:
    assert viewer().get(f"/runs/{three.run_id}/prompts/{row}/").status_code == 404


def test_nothing_yet_says_what_will_be_here(attempt: Attempt) -> None:
    assert "No completions yet" in page(attempt)
    assert "No prompt has completions yet" in page(attempt, "prompts/")


def test_a_spec_of_another_age_is_no_hindrance(three: Attempt) -> None:
    Run.objects.filter(pk=three.run_id).update(spec={"rewards": "once upon a time"})
    for part in ("completions/", "prompts/", "prompts/1/", "prompts/map.json", "prompts/export"):
        page(three, part)
