"""The report, the rows with their filter, one row in full, the export, filtered versions and lineage."""

from __future__ import annotations

import json
import re
from io import BytesIO

import pyarrow.parquet as pq
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.pages import problem_pages
from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.datasets.reader.versions import row_numbers
from runs.engine.models import Run
from tests.controlplane.catalogue.datasets.sources import jsonl
from tests.controlplane.catalogue.datasets.steps import checked, ready, worked
from tests.controlplane.catalogue.datasets.test_mapping_pages import a_known_tokenizer
from tests.controlplane.catalogue.datasets.test_pages import at
from tests.controlplane.people import make_user, operator, viewer

pytestmark = pytest.mark.django_db

LEVELS = ("easy", "medium", "hard")
ROWS = [
    {
        "question": f"Ann has {n} {'apples' if n % 2 else 'pears'} and buys {n} more.{' Go on.' * n} How many?",
        "answer": f"She has {n} + {n}. #### {2 * n}",
        "difficulty": LEVELS[n % 3],
        "tags": ["sums", "long"] if n > 15 else ["sums"],
        "place": {"n": n},
    }
    for n in range(30)
]
MAPPING = ColumnMapping(prompt="question", answer="answer", answer_after="####", difficulty="difficulty", tags="tags")


@pytest.fixture
def version() -> DatasetVersion:
    return ready(ROWS, MAPPING, share=0.2)


def of(answer: object) -> bytes:
    return b"".join(answer.streaming_content) if getattr(answer, "streaming", False) else answer.content  # type: ignore[attr-defined]


# --- the report -------------------------------------------------------------------------------------------------


def test_a_report_is_by_kind_with_advice_place_and_excerpt() -> None:
    bad = checked(
        jsonl(ROWS[:3]) + b'{"question": "a", "answer" "b"}\n' * 30 + b'{"question": 5, "answer": "#### 1"}\n'
    )
    page = viewer().get(at(bad)).content.decode()
    for words in ("Malformed JSON", "Write the file with a JSON library", "line 4", "Wrong type", "All 30"):
        assert words in page
    assert "<mark>" in page
    first = viewer().get(at(bad, "report/?kind=malformed_json")).content.decode()
    assert "1–25 of 30" in first
    second = viewer().get(at(bad, "report/?kind=malformed_json&page=2")).content.decode()
    assert "26–30 of 30" in second
    assert "line 33" in second
    assert viewer().get(at(bad, "report/?kind=nonsense&page=x")).status_code == 200


def test_places_in_a_json_list_are_rows_and_not_lines() -> None:
    bad = checked(json.dumps([*ROWS[:3], {"question": 5, "answer": "#### 1"}], indent=1).encode())
    page = viewer().get(at(bad)).content.decode()
    assert "row 4" in page
    assert "line 4" not in page


def test_all_problems_are_a_download_also_without_their_file() -> None:
    bad = checked(jsonl(ROWS[:3]) + b"broken\n" * 4)
    answer = viewer().get(at(bad, "problems.jsonl"))
    lines = [json.loads(line) for line in of(answer).splitlines()]
    assert [(each["line"], each["kind"]) for each in lines] == [(n, "malformed_json") for n in range(4, 8)]
    assert "attachment" in answer["Content-Disposition"]
    (bad.folder / files.PROBLEMS).unlink()
    assert len(of(viewer().get(at(bad, "problems.jsonl"))).splitlines()) == 4


def test_a_download_that_lists_fewer_problems_than_were_counted_says_so() -> None:
    bad = checked(jsonl(ROWS[:3]) + b"broken\n" * 4)
    pages = [at(bad), at(bad, "report/"), at(bad, "report/?kind=malformed_json")]
    assert not [page for page in pages if "only counted" in viewer().get(page).content.decode()]
    DatasetVersion.objects.filter(pk=bad.pk).update(report=bad.report | {"listed": 3})
    for page in pages:
        assert "has 3 of the 4 problems in this file" in viewer().get(page).content.decode()
    mapped = bad.report | {"listed": 2}
    DatasetVersion.objects.filter(pk=bad.pk).update(report=bad.report | {"mapped": mapped})
    page = viewer().get(at(bad, "report/?kind=malformed_json&of=import")).content.decode()
    assert "has 2 of the 4 problems found during import" in page


@pytest.mark.parametrize(
    ("excerpt", "column", "before", "mark"),
    [
        ("abc", 2, "a", "b"),
        ("abc", 0, "abc", ""),
        ("abc", 9, "abc", ""),
        ("…" + "x" * 80 + "Y" + "z" * 79 + "…", 500, "…" + "x" * 80, "Y"),
        ("…" + "é" * 40 + "Y" + "z" * 79, 500, "…" + "é" * 40, "Y"),
        ("…short", 500, "…short", ""),
    ],
)
def test_an_excerpt_marks_its_place(excerpt: str, column: int, before: str, mark: str) -> None:
    kind = {"kind": "k", "title": "K", "advice": "", "level": "error", "count": 1}
    problem = {"kind": "k", "line": 1, "message": "m", "excerpt": excerpt, "column": column}
    (group,) = problem_pages.groups({"kinds": [kind], "problems": [problem]})
    shown = group["problems"][0]
    assert (shown["before"], shown["mark"]) == (before, mark)
    assert shown["before"] + shown["mark"] + shown["after"] == excerpt


# --- the version ------------------------------------------------------------------------------------------------


def test_a_ready_version_tells_its_facts_figures_and_size(version: DatasetVersion) -> None:
    page = viewer().get(at(version)).content.decode()
    assert "30 rows, ready to train on" in page
    assert version.sha256[:16] in page
    for words in ("Length of the prompt in characters", "medium", "Statistics", "Size guide", "30 rows.", "Few rows"):
        assert words in page
    assert "Export as JSON Lines" in page
    assert "Change the column mapping" not in page
    assert "New version" not in page
    assert "Train on it" not in page
    assert "Train on it" in operator().get(at(version)).content.decode()


def test_an_archived_version_does_not_say_that_it_is_ready(version: DatasetVersion) -> None:
    DatasetVersion.objects.filter(pk=version.pk).update(archived_at=timezone.now())
    page = operator().get(at(version)).content.decode()
    assert "30 rows, archived" in page
    assert "ready to train on" not in page
    assert "Train on it" not in page


def test_lineage_is_shown_both_ways(version: DatasetVersion) -> None:
    run = Run.objects.create(name="a run on it", owner=make_user(), spec={}, dataset_version=version)
    operator().post(at(version, "derive/?difficulty=easy"), {"name": "", "rows": ""})
    child = worked(version.children.get())
    page = viewer().get(at(version)).content.decode()
    assert f'href="{at(child)}"' in page
    assert f'href="/runs/{run.pk}/"' in page
    page = viewer().get(at(child)).content.decode()
    assert f'href="{at(version)}"' in page
    assert "difficulty easy" in page


# --- rows -------------------------------------------------------------------------------------------------------


def test_rows_are_paged_in_order(version: DatasetVersion) -> None:
    first = viewer().get(at(version, "rows/")).content.decode()
    assert "1–20 of 30" in first
    assert "Ann has 0 pears" in first
    second = viewer().get(at(version, "rows/?after=20")).content.decode()
    assert "21–30 of 30" in second
    assert "Ann has 29 apples" in second
    assert "No rows here" in viewer().get(at(version, "rows/?after=99999")).content.decode()


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("text=APPLES", 15),
        ("difficulty=easy", 10),
        ("difficulty=easy&difficulty=hard&tags=long", 9),
        ("at_most=70", None),
        ("text=apples&difficulty=easy", 5),
        ("text=nothing+like+that", 0),
    ],
)
def test_a_filter_finds_rows_and_says_what_it_is(version: DatasetVersion, query: str, count: int | None) -> None:
    page = viewer().get(at(version, f"rows/?{query}")).content.decode()
    if count:
        assert f"{count} of 30 rows" in page
    elif count == 0:
        assert "No rows match" in page
    else:
        assert "prompts of at most 70 characters" in page
        assert "Ann has 29" not in page


@pytest.mark.parametrize("query", ["at_least=9&at_most=3", "at_least=x", "part=nonsense", "text=" + "x" * 500])
def test_a_filter_that_is_none_is_said(version: DatasetVersion, query: str) -> None:
    answer = viewer().get(at(version, f"rows/?{query}"))
    assert answer.status_code == 200
    assert "errorlist" in answer.content.decode()
    assert viewer().get(at(version, f"export/?{query}")).status_code == 302


def test_the_validation_part_alone(version: DatasetVersion) -> None:
    page = viewer().get(at(version, "rows/?part=validation")).content.decode()
    assert f"{version.validation_rows} of 30 rows" in page


def test_one_row_in_full(version: DatasetVersion) -> None:
    page = viewer().get(at(version, "rows/7/?text=apples")).content.decode()
    for words in ("Ann has 7 apples", ">14<", "place", "As JSON", "?text=apples"):
        assert words in page
    assert "Row not found" in viewer().get(at(version, "rows/999/")).content.decode()


def test_rows_whose_file_is_gone_are_an_error_in_words(version: DatasetVersion) -> None:
    for name in (files.ROWS, files.SHOWN_ROWS_FILE, files.SHOWN_INDEX):
        (version.folder / name).unlink()
    for part in ("rows/", "rows/?text=x", "rows/3/"):
        assert "banner bad" in viewer().get(at(version, part)).content.decode()
    for kind in ("jsonl", "parquet"):
        answer = viewer().get(at(version, f"export/?as={kind}"), follow=True)
        assert "banner bad" in answer.content.decode()


# --- export and filtered versions ---------------------------------------------------------------------------------


def test_a_version_is_exported_as_a_whole_and_filtered(version: DatasetVersion) -> None:
    lines = [
        json.loads(line) for line in of(viewer().get(at(version, "export/?as=jsonl&difficulty=hard"))).splitlines()
    ]
    assert [line["row_id"] for line in lines] == list(range(2, 30, 3))
    table = pq.read_table(BytesIO(of(viewer().get(at(version, "export/?as=parquet")))))
    assert table.num_rows == 30
    assert viewer().get(at(version, "export/?as=pickle")).status_code == 302
    # With the attribute `download` a browser would save the page of a failure as the file.
    for page in ("", "rows/?difficulty=hard"):
        links = re.findall(r"<a [^>]*/export/[^>]*>", viewer().get(at(version, page)).content.decode())
        assert links
        assert not [link for link in links if " download" in link]


def test_a_filtered_version_by_the_filter_shown(version: DatasetVersion) -> None:
    answer = operator().post(at(version, "derive/?difficulty=hard"), {"name": "hard ones", "rows": ""})
    made = worked(version.children.get())
    assert answer["Location"] == at(made)
    assert (made.status, made.rows, made.dataset.name) == (DatasetVersion.READY, 10, "hard ones")


@pytest.mark.parametrize(
    "pasted",
    ["3, 5 7\n3", "[3, 5, 7]", '{"run": "r", "rows": [7, 5, 3]}', '{"row": 3, "solved": 1}\n{"row": 5}\n{"row": 7}\n'],
)
def test_a_filtered_version_by_row_numbers(version: DatasetVersion, pasted: str) -> None:
    operator().post(at(version, "derive/"), {"name": "", "rows": pasted})
    made = worked(version.children.get())
    assert (made.rows, made.number) == (3, 2)
    assert "–</span>" in viewer().get("/datasets/").content.decode()  # no file of its own, and so no size
    assert "3 rows by number" in viewer().get(at(made)).content.decode()


def test_a_filtered_version_by_the_file_of_a_difficulty_map(version: DatasetVersion) -> None:
    file = SimpleUploadedFile("map.json", b'{"rows": [1, 2]}')
    operator().post(at(version, "derive/"), {"name": "", "rows": "", "rows_file": file})
    assert worked(version.children.get()).rows == 2


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("first", "difficulty hard; the first 3 rows"),
        ("random", "difficulty hard; 3 random rows, drawn with seed 7"),
    ],
)
def test_a_filtered_version_of_so_many_rows(version: DatasetVersion, which: str, words: str) -> None:
    operator().post(at(version, "derive/?difficulty=hard"), {"number": "3", "which": which, "seed": "7"})
    made = worked(version.children.get())
    assert made.rows == 3
    assert words in viewer().get(at(made)).content.decode()


def test_a_filtered_version_without_long_prompts_is_counted_with_the_chosen_tokenizer(version: DatasetVersion) -> None:
    assert "a host must first send" in operator().get(at(version, "rows/")).content.decode()
    known = a_known_tokenizer()
    page = operator().get(at(version, "rows/")).content.decode()
    assert 'name="tokens"' in page
    assert "a host must first send" not in page
    operator().post(at(version, "derive/"), {"rows": "1 2 29", "tokens": "150", "tokenizer": known.pk})
    made = worked(version.children.get())
    assert (made.rows, made.tokenizer, made.token_limit) == (2, known.pk, 150)
    page = viewer().get(at(made)).content.decode()
    assert "prompts of at most 150 tokens" in page
    assert "Prompts over the token limit" not in page


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tokens": "5"}, "Choose a tokenizer"),
        ({"number": "0"}, "At least 1"),
        ({"number": "999999"}, "rows. Leave it empty to take all of them"),
        ({"tokens": "0"}, "At least 1"),
        ({"rows": "1, two"}, "“two” is not a row number"),
        ({"rows": "-1"}, "not a row number"),
        ({"rows": "{}"}, "not a row number"),
        ({"rows": '{"a": 1}\nx'}, "neither a list"),
        ({"rows": "[]"}, "no row numbers"),
        ({"rows": ""}, "The filter is empty"),
        ({"which": "random", "seed": "7"}, "The filter is empty"),
    ],
)
def test_what_makes_no_version_is_said_and_stays_typed(
    version: DatasetVersion, fields: dict[str, str], said: str
) -> None:
    a_known_tokenizer()
    answer = operator().post(at(version, "derive/"), {"name": "typed by me"} | fields)
    page = answer.content.decode()
    assert (answer.status_code, said in page) == (422, True)
    assert "typed by me" in page
    assert not version.children.exists()


def test_deeply_nested_row_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="row number"):
        row_numbers.read("[" * 100_000)
