"""The decision about bad rows, the mapping with its example, and the import."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
from django.test import Client

from controlplane.catalogue.datasets import browsing
from controlplane.catalogue.datasets.models import DatasetVersion, Tokenizer
from controlplane.catalogue.datasets.pages.mapping_forms import NO_ANSWER
from controlplane.catalogue.hardware import inspections
from controlplane.catalogue.hardware.models import ModelInspection
from tests.controlplane.catalogue.datasets.sources import jsonl
from tests.controlplane.catalogue.datasets.steps import ROWS, checked, ready, worked
from tests.controlplane.catalogue.datasets.test_pages import at
from tests.controlplane.catalogue.datasets.tokenizers import a_tokenizer
from tests.controlplane.people import operator, viewer
from tests.runs.builders import a_host

pytestmark = pytest.mark.django_db

FIELDS = {
    "transform": "columns",
    "prompt": "question",
    "holds": "text",
    "input": "",
    "answer": "answer",
    "answer_after": "####",
    "test_cases": "",
    "difficulty": "",
    "tags": "",
    "follow_up": "",
    "follow_up_response": "",
    "chat": "chat",
    "system_prompt": "",
    "template": "",
    "tokenizer": "",
    "token_limit": "",
    "share": "0.2",
    "seed": "7",
}


def problems(client: Client, version: DatasetVersion, **change: str) -> dict[str, Any]:
    """What the form is told while somebody types."""
    answer = client.post(at(version, "example/"), FIELDS | change)
    told: dict[str, Any] = json.loads(answer["HX-Trigger"])["mappingproblems"]
    return told


def example(client: Client, version: DatasetVersion, **change: str) -> str:
    return client.post(at(version, "example/"), FIELDS | change).content.decode()


def a_known_tokenizer(model: str = "tiny") -> Tokenizer:
    known = Tokenizer.objects.create(sha256="ab" * 32, model=model, has_chat_template=True)
    a_tokenizer(known.folder)
    return known


def test_bad_rows_are_counted_and_somebody_decides() -> None:
    version, client = checked(jsonl(ROWS) + b"broken\n[]\n"), operator()
    page = client.get(at(version)).content.decode()
    assert "7 rows, 2 problems in 2 rows" in page
    assert "What should happen to the 2 bad rows?" in page
    assert "What should happen" not in viewer().get(at(version)).content.decode()
    client.post(at(version, "leave-out/"))
    page = client.get(at(version)).content.decode()
    assert "The bad rows are left out" in page
    assert 'id="mapping-form"' in page
    client.post(at(version, "mapping/"), FIELDS)
    version = worked(version)
    assert (version.status, version.rows) == (DatasetVersion.READY, 5)


def test_the_schema_is_recognised_with_its_why_and_proposed() -> None:
    version = checked()
    page = operator().get(at(version)).content.decode()
    recognised = version.report["recognised"]
    assert recognised["title"] in page
    assert '<option value="gsm8k" selected>' in page
    assert '<option value="question" selected>' in page
    assert '<p class="muted" hidden data-no-preview>No preview,' in page  # for the page's script
    assert 'id="mapping-form"' not in viewer().get(at(version)).content.decode()


def test_the_example_is_a_real_row_with_the_forms_mapping() -> None:
    version, client = checked(), operator()
    page = example(client, version, system_prompt="Be brief.", template="Q: {prompt} A:")
    assert "Q: What is 0 plus 0? A:" in page
    assert "Be brief." in page
    assert "Example 1 of 5" in page
    assert "What is 3 plus 3?" in example(client, version, row="3")
    assert "What is 4 plus 4?" in example(client, version, row="99")
    assert "has no ## in it" not in page
    assert "contain @@" in example(client, version, answer_after="@@")


def test_tokens_are_counted_after_the_chat_template() -> None:
    version, client, known = checked(), operator(), a_known_tokenizer()
    page = example(client, version, tokenizer=known.pk, token_limit="3")
    assert "&lt;|im_start|&gt;user" in page
    assert "too many" in page
    assert "With the chat template of tiny" in page
    assert "too many" not in example(client, version, tokenizer=known.pk, token_limit="5000")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"prompt": "nothing"}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"chat": "x"}, "chat"),
        ({"answer": "question"}, "answer"),
        ({"holds": "messages", "chat": "plain"}, "chat"),
        ({"template": "the same for all"}, "template"),
        ({"template": "{nowhere} {prompt}"}, "template"),
        ({"token_limit": "5"}, "token_limit"),
        ({"token_limit": "-5"}, "token_limit"),
        ({"share": "1.5"}, "share"),
        ({"seed": "x"}, "seed"),
        ({"transform": "custom"}, "code"),
        ({"transform": "magic"}, "transform"),
        ({"follow_up_response": "answer"}, "follow_up"),
    ],
)
def test_a_mistake_is_told_at_its_field_and_nothing_typed_is_lost(change: dict[str, str], field: str) -> None:
    version, client = checked(), operator()
    assert field in problems(client, version, **change)
    answer = client.post(at(version, "mapping/"), FIELDS | {"system_prompt": "What I typed"} | change)
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "What I typed" in page
    assert "field to correct.</strong> Nothing was saved." in page
    assert f'<a href="#id_{field}">' in page
    assert '<p class="muted" data-no-preview>No preview, because the mapping has errors.</p>' in page
    assert f'data-problems="{field}" role="alert"> <li>' in page
    version.refresh_from_db()
    assert version.status == DatasetVersion.NEEDS_MAPPING


def test_all_wrong_fields_are_told_at_once() -> None:
    version, client = checked(), operator()
    wrong = {"prompt": "nothing", "token_limit": "5", "share": "1.5", "template": "{nowhere} {prompt}"}
    assert set(problems(client, version, **wrong)) == set(wrong)
    page = client.post(at(version, "mapping/"), FIELDS | wrong).content.decode()
    assert "The template uses {nowhere}, but the file has no such column." in page
    assert "4 fields to correct.</strong>" in page


def test_a_file_without_a_known_answer_column_is_imported_only_after_a_choice() -> None:
    rows = [{"ID": str(n), "Question Text": f"What is {n} plus {n}?", "Remarks": "none"} for n in range(6)]
    version, client = checked(jsonl(rows)), operator()
    fields = FIELDS | {"prompt": "Question Text", "answer": "", "answer_after": ""}
    page = client.get(at(version)).content.decode()
    assert '<option value="Question Text" selected>' in page
    assert "no column name suggests an answer" in page
    assert "Looks right, import" not in page
    assert "What is 0 plus 0?" in client.post(at(version, "example/"), fields).content.decode()
    refused = client.post(at(version, "mapping/"), fields)
    assert refused.status_code == 422
    assert "Choose the answer column, or “no answers”." in refused.content.decode()
    client.post(at(version, "mapping/"), fields | {"answer": NO_ANSWER})
    assert (worked(version).status, version.rows) == (DatasetVersion.READY, 6)


def test_a_recognised_file_is_imported_from_the_top_of_its_mapping() -> None:
    rows = [{"ID": str(n), "Question Text": f"{n} plus {n}?", "Expected Answer": str(2 * n)} for n in range(6)]
    page = operator().get(at(checked(jsonl(rows)))).content.decode()
    assert "and “Expected Answer” suggest a prompt and its answer" in page
    assert page.index("Looks right, import") < page.index("Import with this mapping")


def test_where_rows_did_not_fit_the_button_at_the_top_drops_them() -> None:
    rows = [{"question": f"{n} plus {n}?" if n else "", "answer": str(2 * n)} for n in range(6)]
    version, client = checked(jsonl(rows)), operator()
    page = client.get(at(version)).content.decode()
    assert ("Looks right, import" in page, "Import without 1 row" in page) == (True, False)
    fields = FIELDS | {"prompt": "question", "answer": "answer", "answer_after": ""}
    client.post(at(version, "mapping/"), fields)
    assert worked(version).status == DatasetVersion.NEEDS_MAPPING
    page = client.get(at(version)).content.decode()
    assert "Looks right, import" not in page
    assert page.index("Import without 1 row") < page.index("Import with this mapping")
    client.post(at(version, "mapping/"), fields | {"leave_out": "1"})
    assert (worked(version).status, version.rows) == (DatasetVersion.READY, 5)


def test_the_import_keeps_mapping_split_and_tokenizer() -> None:
    version, client, known = checked(), operator(), a_known_tokenizer()
    client.post(at(version, "mapping/"), FIELDS | {"tokenizer": known.pk, "token_limit": "4000"})
    version = worked(version)
    assert (version.status, version.split) == (DatasetVersion.READY, {"share": 0.2, "seed": 7})
    assert (version.tokenizer, version.token_limit, version.validation_rows) == (known.pk, 4000, 1)
    page = viewer().get(at(version)).content.decode()
    assert "5 rows, ready to train on" in page
    assert "in tokens" in page
    assert "seed 7" in page


def test_rows_that_the_mapping_does_not_fit_are_shown_and_can_be_dropped() -> None:
    rows = [{"q": f"What is {n}?", "a": f"It is {n}" if n else "nothing of that kind"} for n in range(6)]
    version, client = checked(jsonl(rows)), operator()
    fields = FIELDS | {"prompt": "q", "answer": "a", "answer_after": "It is"}
    client.post(at(version, "mapping/"), fields)
    version = worked(version)
    page = client.get(at(version)).content.decode()
    assert "1 of 6 rows does not fit this mapping" in page
    assert "Answer without its marker" in page
    client.post(at(version, "mapping/"), fields | {"leave_out": "1"})
    version = worked(version)
    assert (version.status, version.rows) == (DatasetVersion.READY, 5)
    assert "1 bad row dropped" in client.get(at(version)).content.decode()


def test_a_follow_up_shows_both_turns_and_is_imported_as_two_rows_of_one_part() -> None:
    rows = [
        {"q": f"What is {n}?", "a": "A number.", "more": f"And {n} + 1?" if n else "", "then": "2"} for n in range(6)
    ]
    version, client = checked(jsonl(rows)), operator()
    turns = {"follow_up": "more", "follow_up_response": "then"}
    fields = FIELDS | {"prompt": "q", "answer": "a", "answer_after": "", "share": "0.4"} | turns
    assert "Turn 1 of 2" not in client.post(at(version, "example/"), fields | {"row": "1"}).content.decode()
    fields |= {"one_per_turn": "on"}
    page = client.post(at(version, "example/"), fields | {"row": "1"}).content.decode()
    assert "Turn 1 of 2" in page
    assert "Turn 2 of 2" in page
    assert "Example 2 of 6" in page
    client.post(at(version, "mapping/"), fields)
    version = worked(version)
    made = browsing.page(version, limit=50)["rows"]
    assert [one["row_id"] for one in made] == [0, *range(2, 12)]
    by_file_row: dict[int, set[str]] = {}
    for one in made:
        by_file_row.setdefault(one["metadata"]["file_row"], set()).add(one["split"])
    assert Counter(map(frozenset, by_file_row.values())) == {frozenset({"train"}): 4, frozenset({"validation"}): 2}
    page = client.get(at(version)).content.decode()
    assert "11 rows, ready to train on" in page
    assert "one prompt per turn" in page


MIXED = [{"q": f"What is {n}?", "a": f"It is {n}" if n else "nothing of that kind"} for n in range(6)]
OF_MIXED = FIELDS | {"prompt": "q", "answer": "a", "answer_after": "It is"}


def imported(client: Client, version: DatasetVersion, **change: str) -> tuple[str, str]:
    """(status, page) after an import was asked for."""
    client.post(at(version, "mapping/"), OF_MIXED | change)
    return worked(version).status, client.get(at(version)).content.decode()


def test_dropping_bad_lines_is_no_leave_to_drop_what_a_mapping_does_not_fit() -> None:
    version, client = checked(jsonl(MIXED) + b"broken\n"), operator()
    assert "What should happen to the 1 bad row?" in client.get(at(version)).content.decode()
    client.post(at(version, "leave-out/"))
    status, page = imported(client, version)
    assert (status, version.mapping["leave_out"]) == (DatasetVersion.NEEDS_MAPPING, False)
    assert "1 of 6 rows does not fit this mapping" in page
    assert "Import, and drop the 1 row that does not fit" in page
    status, page = imported(client, version, leave_out="1")
    assert (status, version.rows) == (DatasetVersion.READY, 5)
    assert "2 bad rows dropped" in page


def test_the_leave_to_drop_rows_is_of_the_mapping_that_was_tried() -> None:
    version, client = checked(jsonl(MIXED)), operator()
    assert imported(client, version, leave_out="1")[0] == DatasetVersion.NEEDS_MAPPING  # nobody was told a number yet
    status, page = imported(client, version, answer_after="of that", leave_out="1")
    assert status == DatasetVersion.NEEDS_MAPPING
    assert "5 of 6 rows do not fit this mapping" in page
    assert imported(client, version, answer_after="of that", leave_out="1")[0] == DatasetVersion.READY


FILES = {
    "jsonl": jsonl(ROWS) + b"broken\n\n",
    "json": b"[" + b",".join(jsonl(ROWS).splitlines()) + b", 3]",
    "csv": b"question,answer\n" + b"".join(b"What is %d?,%d\n" % (n, n) for n in range(5)) + b"one,two,three\n",
}


@pytest.mark.parametrize("kind", FILES)
def test_rows_are_all_rows_of_the_file_whatever_its_format(kind: str) -> None:
    version, client = checked(FILES[kind]), operator()
    assert version.rows == 6
    assert "6 rows, 1 problem in 1 row" in client.get(at(version)).content.decode()
    assert 'data-label="Rows">6<' in client.get("/datasets/").content.decode()


def test_a_version_with_notes_alone_has_a_tab_of_notes() -> None:
    page = viewer().get(at(ready([*ROWS, ROWS[0]]))).content.decode()
    assert re.search(r">Notes\s*<span class=\"muted\">1<", page)
    assert re.search(r">Problems</a>", viewer().get(at(ready(ROWS))).content.decode())


def test_rows_that_only_the_proposed_mapping_does_not_fit_lead_to_the_mapping() -> None:
    rows = [{"question": f"What is {n}?", "answer": str(n) if n > 3 else None} for n in range(6)]
    version, client = checked(jsonl(rows)), operator()
    page = client.get(at(version)).content.decode()
    assert version.status == DatasetVersion.NEEDS_MAPPING
    assert "6 rows, 4 problems in 4 rows" in page
    assert "4 rows do not fit the proposed mapping" in page
    assert "What should happen" not in page
    client.post(at(version, "mapping/"), FIELDS | {"answer": NO_ANSWER, "answer_after": ""})
    assert (worked(version).status, version.rows) == (DatasetVersion.READY, 6)


def test_bad_rows_are_told_from_those_that_the_proposed_mapping_does_not_fit() -> None:
    rows = [{"question": f"What is {n}?", "answer": str(n) if n else None} for n in range(6)]
    version, client = checked(jsonl(rows) + b"broken\n[]\n"), operator()
    page = client.get(at(version)).content.decode()
    assert "8 rows, 3 problems in 3 rows" in page
    assert "What should happen to the 2 bad rows?" in page
    assert "1 other row does not fit the proposed mapping" in page
    page = client.post(at(version, "leave-out/"), follow=True).content.decode()
    assert "The 2 bad rows are left out. 1 row does not fit the proposed mapping" in page


def test_a_mapping_is_not_changed_twice() -> None:
    version, client = checked(), operator()
    client.post(at(version, "mapping/"), FIELDS)
    answer = client.post(at(version, "mapping/"), FIELDS | {"prompt": "answer", "answer": "question"}, follow=True)
    assert "Someone has already mapped this version" in answer.content.decode()
    version.refresh_from_db()
    assert version.mapping["prompt"] == "question"


def test_an_import_that_is_stopped_leads_back_to_the_mapping() -> None:
    version, client = checked(), operator()
    client.post(at(version, "mapping/"), FIELDS | {"system_prompt": "Kept"})
    page = client.post(at(version, "cancel/"), follow=True).content.decode()
    assert "Nothing was imported, and the mapping is unchanged" in page
    assert "Kept" in page


def test_the_same_file_can_be_mapped_again_as_a_new_version() -> None:
    version = ready()
    answer = operator().post(at(version, "again/"))
    again = version.dataset.versions.get(number=2)
    assert answer["Location"] == at(again)
    assert (again.status, again.parent) == (DatasetVersion.NEEDS_MAPPING, version)
    page = operator().get(at(again)).content.decode()
    assert 'value="####"' in page


def test_two_hundred_columns_can_be_chosen_from() -> None:
    rows = [{f"column {n}": n for n in range(190)} | {"prompt": f"{m}?", "answer": str(m)} for m in range(3)]
    page = " ".join(operator().get(at(checked(jsonl(rows)))).content.decode().split())
    assert '<option value="column 189">' in page
    assert "24 of 192 columns" in page


def test_another_models_tokenizer_is_asked_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    version, client, host = checked(), operator(), a_host()
    asked = ModelInspection.objects.create(host=host, model="owner/model")
    monkeypatch.setattr(inspections, "request_inspection", lambda host, model, force=False: asked)
    page = client.post(at(version, "tokenizer/"), {"model": "owner/model"}).content.decode()
    assert f"Asking {host.name} about owner/model" in page
    known = a_known_tokenizer("owner/model")
    answered = {"ok": True, "tokenizer_files": {"sha256": known.pk}}
    ModelInspection.objects.filter(pk=asked.pk).update(answer=answered, answered_at=asked.asked_at)
    answer = client.get(at(version, f"tokenizer/?inspection={asked.pk}"))
    assert json.loads(answer["HX-Trigger"])["tokenizerfound"] == {"sha256": known.pk, "model": "owner/model"}
    assert viewer().post(at(version, "tokenizer/"), {"model": "x"}).status_code == 403


def test_a_tokenizer_without_a_host_to_ask_is_said() -> None:
    page = " ".join(operator().post(at(checked(), "tokenizer/"), {"model": "owner/model"}).content.decode().split())
    assert "No host is connected" in page
