"""Where the playground's completions come from, and what is told when they have gone."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client

from controlplane.catalogue.datasets.models import DatasetVersion
from runs.engine.models import Attempt, Run
from runs.engine.records import SampleRow
from runs.insight.scoring import rows
from runs.intake.host_api import uploads
from runs.pages.playground.completions_source import EDITABLE_CHARS
from tests.controlplane.catalogue.datasets.steps import ready
from tests.controlplane.catalogue.rewards.test_pages import fields
from tests.controlplane.people import operator, viewer
from tests.datasets import ready_version
from tests.runs.builders import a_run, an_attempt

pytestmark = pytest.mark.django_db

LONG = "x" * 30_000
NASTY = "<script>alert(1)</script>"


def a_line(step: int, row: int | None, *texts: str, **changes: Any) -> dict[str, Any]:
    told = [
        {"text": text, "tokens": 3, "end": "eos", "rewards": {"format": 0.5}, "reward": 0.5, "advantage": 0.1}
        for text in texts
    ]
    return {"step": step, "row": row, "prompt": "What is 2 plus 2?", "answer": "4", "completions": told} | changes


def a_stored_run(*lines: dict[str, Any], version: DatasetVersion | None = None, name: str = "first") -> Attempt:
    attempt = an_attempt(run=a_run(name))
    if version is None:
        attempt.run.dataset_version.rows_path.unlink(missing_ok=True)  # of an earlier test's version of this number
    else:
        Run.objects.filter(pk=attempt.run_id).update(dataset_version=version)
    uploads.samples(attempt, 1, list(lines))
    return attempt


def sample(client: Client | None = None, **asked: Any) -> str:
    return (client or operator()).get("/rewards/sample/", asked).content.decode()


def tried(*functions: str, **sent: Any) -> str:
    return operator().post("/rewards/try/", fields(*functions, **sent)).content.decode()


def test_runs_are_found_by_name_and_id_and_only_with_completions():
    stored, empty = a_stored_run(a_line(1, 0, "4"), name="with texts"), a_run("without")
    client = operator()
    listed = client.get("/rewards/runs/").content.decode()
    assert (stored.run_id in listed, empty.pk in listed) == (True, False)
    assert stored.run_id in client.get("/rewards/runs/", {"q": "TEXTS"}).content.decode()
    assert "with texts" in client.get("/rewards/runs/", {"q": stored.run_id, "for": "replay"}).content.decode()
    assert "No matching run" in client.get("/rewards/runs/", {"q": "nothing"}).content.decode()


def test_a_groups_completions_come_with_its_prompt_and_what_the_run_gave():
    attempt = a_stored_run(a_line(1, 0, "<think>a</think>4", "5"), a_line(2, 1, "six"))
    page = sample(**{"from": "run", "run": attempt.run_id, "step": 1})
    assert "What is 2 plus 2?" in page
    assert "in the run 0.500" in page
    assert "Row 0: 2 completions" in page
    assert 'aria-label="Later step" hx-get' in page
    assert "six" in sample(**{"from": "run", "run": attempt.run_id})  # the newest


def test_a_row_is_read_whole_for_what_a_group_answers():
    tests = [f"assert f({n}) == {n}" for n in range(3000)]
    version = ready_version("code", [{"prompt": "Write f.", "answer": None, "test_cases": tests, "kind": "x" * 5000}])
    found = rows.by_number(version, [0, 7])
    assert found.rows == {0: {"row": 0, "prompt": "Write f.", "answer": None, "test_cases": tests, "kind": "x" * 5000}}
    version.rows_path.unlink()
    assert rows.by_number(version, [0]).rows == found.rows  # a version never changes


def test_a_datasets_row_is_chosen_by_its_place_and_whole_where_it_is_long():
    version = ready([{"question": f"What is {n}?" + "!" * 5000 * (n == 2), "answer": f"#### {n}"} for n in range(4)])
    assert rows.shown_prompt(rows.row_at(version, 1).row) == "What is 1?"
    assert rows.shown_prompt(rows.row_at(version, 2).row) == "What is 2?" + "!" * 5000
    assert (rows.row_at(version, 7).index, rows.row_at(version, 7).count) == (3, 4)
    assert 'value="3"' in sample(version=version.pk, sample=3)


def test_without_its_dataset_a_group_goes_by_what_the_run_stored():
    attempt = a_stored_run(a_line(1, 0, "4"))
    page = sample(**{"from": "run", "run": attempt.run_id})
    assert "Only the prompt and the answer that the run stored are known." in page
    group = SampleRow.objects.get().pk
    scored = tried("numeric_match", **{"from": "run", "run": attempt.run_id, "group": group, "completion": ["4", "5"]})
    assert "+0.71" in scored


def test_a_stored_completion_counts_with_its_turns_and_all_its_letters_while_it_is_unchanged():
    line = a_line(1, 0, LONG, "4")
    attempt = a_stored_run(line)
    group = SampleRow.objects.get().pk
    page = sample(**{"from": "run", "run": attempt.run_id})
    assert "the first 20,000 of 30,000 characters; scored in full" in page
    sent = {"from": "run", "run": attempt.run_id, "group": group, "of": ["1", "2"], "c0-p_target": "25000"}
    sent |= {"c0-p_maximum": "26000"}
    whole = tried("length", completion=[LONG[:EDITABLE_CHARS], "4"], **sent)
    edited = tried("length", completion=[LONG[:100], "4"], **sent)
    assert "+0.71" in whole  # too long, the other isn't
    assert "All totals are equal" in edited


def test_line_breaks_of_a_form_and_blank_completions_of_a_run_are_no_edit():
    attempt = a_stored_run(a_line(1, 0, "a\r\nb\n", "", " "))
    group = SampleRow.objects.get().pk
    sent = {"from": "run", "run": attempt.run_id, "group": group, "of": ["1", "2", "3", "", ""]}
    page = tried("length", completion=["a\r\nb\r\n", "", " ", "", "  \n"], **sent)
    scored = re.findall(r'id="scores-(\d)" hx-swap-oob="true">\s*<p class="row single try-total">', page)
    assert scored == ["0", "1", "2"]  # each beside its text, and blank ones of nobody's go


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"run": "nobody"}, "This run no longer exists"),
        ({}, "Find a run"),
    ],
)
def test_a_run_that_is_not_there_is_told_and_another_can_be_chosen(asked: dict[str, Any], said: str):
    page = sample(**{"from": "run"}, **asked)
    assert said in page
    assert "/rewards/runs/" in page


def test_a_run_that_goes_while_it_is_tried_leaves_the_texts_to_score():
    sent = {"from": "run", "run": "gone", "group": "7", "completion": ["<think>a</think>b", "c"], "of": ["1", "2"]}
    page = tried("think_tags", **sent)
    assert "This run no longer exists" in page
    assert "+0.71" in page


def test_a_group_that_a_resume_made_void_and_texts_that_retention_took():
    attempt = a_stored_run(a_line(1, 0, "4"), a_line(2, 1, "void"))
    void = SampleRow.objects.get(step=2)
    SampleRow.objects.filter(pk=void.pk).update(superseded=True)
    page = sample(**{"from": "run", "run": attempt.run_id, "group": void.pk})
    assert "That group no longer exists" in page
    assert "void</textarea>" not in page
    SampleRow.objects.filter(step=1).update(size=0, data={"names": [], "figures": [[0.5, 0.1, 3, "eos", []]]})
    page = sample(**{"from": "run", "run": attempt.run_id})
    assert "no longer stored, only their scores" in page
    assert "texts not stored" in page


def test_a_row_by_hand_has_a_prompt_an_answer_and_tests():
    assert "Tests, one per line" in sample(**{"from": "hand"})
    page = tried("numeric_match", **{"from": "hand", "answer": "7", "completion": ["7", "8"]})
    assert "+0.71" in page


def test_what_a_run_wrote_is_text_and_its_first_line_break_is_kept():
    attempt = a_stored_run(a_line(1, 0, f"\n{NASTY}", prompt=NASTY))
    page = sample(**{"from": "run", "run": attempt.run_id})
    assert NASTY not in page
    assert "\n\n&lt;script&gt;" in page


def test_the_source_is_in_the_pages_address_so_that_a_reload_comes_back_to_it():
    attempt = a_stored_run(a_line(1, 0, "4"))
    headers = {"HX-Current-URL": "http://testserver/rewards/new/?from=hand"}
    answer = operator().get("/rewards/sample/", {"from": "run", "run": attempt.run_id}, headers=headers)
    group = SampleRow.objects.get().pk
    assert answer["HX-Replace-Url"] == f"/rewards/new/?from=run&run={attempt.run_id}&group={group}"
    page = operator().get(answer["HX-Replace-Url"]).content.decode()
    assert f'<option value="{group}" selected' in page
    elsewhere = {"HX-Current-URL": "https://evil.example/other/"}
    assert "HX-Replace-Url" not in operator().get("/rewards/sample/", headers=elsewhere).headers


def test_completions_stay_as_they_were_written_when_saving_is_refused():
    sent = fields("length", name="", completion=["what I wrote", "and this"])
    page = operator().post("/rewards/new/", sent).content.decode()
    assert "what I wrote</textarea>" in page
    assert "I don&#x27;t know." not in page


def test_a_group_of_a_run_leads_to_the_editor_of_its_rewards_with_the_group_and_the_run_chosen():
    attempt = a_stored_run(a_line(1, 0, "4"))
    group, client = SampleRow.objects.get(), operator()
    page = client.get(f"/runs/{attempt.run_id}/completions/{group.pk}/").content.decode()
    [address] = re.findall(r'href="(/rewards/[^"]+)">Try other rewards', page)
    editor = client.get(html.unescape(address)).content.decode()
    assert f'<option value="{group.pk}" selected' in editor
    assert f"/rewards/replay/?replay={attempt.run_id}" in editor
    assert "Try other rewards" not in viewer().get(f"/runs/{attempt.run_id}/completions/{group.pk}/").content.decode()
