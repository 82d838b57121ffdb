"""A transform of one's own: who may write one, what it makes of rows, and what its errors say."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from controlplane.catalogue.datasets import actions
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.columns import row_function
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from tests import reader_in_process
from tests.controlplane.catalogue.datasets.sources import jsonl
from tests.controlplane.catalogue.datasets.steps import ROWS, checked, worked
from tests.controlplane.catalogue.datasets.test_mapping_pages import FIELDS
from tests.controlplane.catalogue.datasets.test_pages import at
from tests.controlplane.people import admin, operator
from workers.sandbox.pool import Sandbox

pytestmark = [pytest.mark.django_db, pytest.mark.processes]

CODE = """import re
def transform(row):
    if "3" in row["question"]:
        return None
    number = re.search("#### (.*)", row["answer"])[1]
    return {"prompt": row["question"].upper(), "answer": number, "level": len(number), "source": ("a", {"b"})}
"""
CUSTOM = FIELDS | {"transform": "custom", "code": CODE, "prompt": "", "answer": ""}


def imported(code: str, rows: Any = None, **more: Any) -> DatasetVersion:
    version = checked(jsonl(ROWS if rows is None else rows))
    assert actions.request_import(version, ColumnMapping(transform="custom", code=code, **more), share=0)
    return worked(version)


def rows_of(version: DatasetVersion) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(version.folder / files.ROWS).to_pylist()
    return rows


def messages_of(version: DatasetVersion) -> list[str]:
    return [problem["message"] for problem in version.report["mapped"]["problems"]]


def test_rows_are_what_the_function_returns_and_keep_their_numbers() -> None:
    version = imported(CODE)
    assert (version.status, version.rows) == (DatasetVersion.READY, 4)
    rows = rows_of(version)
    assert [row["row_id"] for row in rows] == [0, 1, 2, 4]
    assert rows[4 - 1]["prompt"] == [{"role": "user", "content": "WHAT IS 4 PLUS 4?"}]
    assert (rows[3]["answer"], json.loads(rows[3]["metadata"])) == ("8", {"level": 1, "source": ["a", ["b"]]})
    assert [kind["kind"] for kind in version.report["kinds"]] == ["left_out"]
    assert [column["name"] for column in version.report["columns"]] == ["question", "answer"]


def test_messages_tests_difficulty_and_tags_are_taken_where_a_row_has_them() -> None:
    code = """def transform(row):
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": row["question"]}]
    more = {"test_cases": ["assert f() == 1"], "difficulty": "hard", "tags": ["sums"]} if "1" in row["question"] else {}
    return {"prompt": prompt} | more
"""
    version = imported(code, messages=True)
    plain, full = rows_of(version)[:2]
    assert (plain["answer"], plain["test_cases"], plain["metadata"]) == (None, [], "{}")
    assert (full["test_cases"], json.loads(full["metadata"])) == (
        ["assert f() == 1"],
        {"difficulty": "hard", "tags": ["sums"]},
    )
    assert full["prompt"][0] == {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return row['nothing']", "KeyError: 'nothing', at its line 2"),
        ("return row['question']", "returned str, not a dict"),
        ("return {'prompt': print}", "builtin_function_or_method"),
        ("return {}", "no fields"),
        ("return {'answer': '1'}", "“prompt” is missing"),
        ("raise SystemExit", "ended early"),
        ("open('/etc/passwd').read()", "Error"),
    ],
)
def test_an_error_is_a_problem_of_its_rows(body: str, words: str) -> None:
    version = imported(f"def transform(row):\n    {body}\n")
    assert version.status == DatasetVersion.NEEDS_MAPPING
    assert len(messages_of(version)) == 5
    assert words in messages_of(version)[0]


def test_a_function_that_does_not_end_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reader_in_process.install(monkeypatch)  # whose limit can be lowered
    monkeypatch.setattr(row_function, "_LIMITS", row_function.Limits(seconds=1))
    runs: list[int] = []
    run = Sandbox.run
    monkeypatch.setattr(Sandbox, "run", lambda *given, **more: runs.append(1) or run(*given, **more))
    version = imported("def transform(row):\n    while True: pass\n")
    assert (version.status, len(runs)) == (DatasetVersion.NEEDS_MAPPING, 1)
    problem = version.report["mapped"]["file_error"]
    assert problem["message"] == "It took longer than 1 s. The transform was on the rows of line 1 to 5."
    assert "Change the function" in admin().get(at(version)).content.decode()


def test_rows_that_it_fails_on_can_be_left_out() -> None:
    code = "def transform(row):\n    return {'prompt': row['question'], 'answer': str(1 // (len(row['answer']) - 9))}\n"
    rows = [{"question": f"Ask {n}?", "answer": "x" * (8 + n % 2)} for n in range(6)]
    version = imported(code, rows)
    assert (version.status, version.report["mapped"]["unfit_rows"]) == (DatasetVersion.NEEDS_MAPPING, 3)
    mapping = ColumnMapping(transform="custom", code=code, leave_out=True)
    assert actions.request_import(version, mapping, share=0)
    assert (worked(version).status, version.rows) == (DatasetVersion.READY, 3)


def test_it_is_tried_on_sample_rows_while_it_is_written() -> None:
    version, client = checked(), admin()
    page = client.post(at(version, "example/"), CUSTOM).content.decode()
    assert "WHAT IS 0 PLUS 0?" in page
    third = client.post(at(version, "example/"), CUSTOM | {"row": "3"}).content.decode()
    assert "left this row out" in third
    broken = client.post(at(version, "example/"), CUSTOM | {"code": "def transform(row):\n    return row['no']"})
    assert "KeyError" in broken.content.decode()


def test_only_admins_write_functions_and_operators_reuse_them() -> None:
    version, client = checked(), operator()
    refused = client.post(at(version, "mapping/"), CUSTOM)
    assert refused.status_code == 422
    assert "Only admins can write or change a function." in refused.content.decode()
    assert (
        "KeyError"
        not in client.post(at(version, "example/"), CUSTOM | {"code": "def transform(row): 1/0"}).content.decode()
    )
    admin().post(at(version, "mapping/"), CUSTOM | {"code": CODE.replace("\n", "\r\n")})
    assert worked(version).status == DatasetVersion.READY
    assert version.mapping["code"] == CODE
    other = checked()
    page = client.get(at(other)).content.decode()
    assert f">{version}</option>" in page
    client.post(at(other, "mapping/"), CUSTOM)
    assert worked(other).status == DatasetVersion.READY


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "Write a function"),
        ("x = 1", "Define a function"),
        ("def transform(): pass", "Define a function"),
        ("async def transform(row): pass", "Define a function"),
        ("def transform(row)\n  pass", "Line 1: expected ':'."),
        ("(" * 100, "nested too deeply"),
        ("\0", "NUL"),
    ],
)
def test_what_can_be_no_transform_is_told_before_it_runs(source: str, words: str) -> None:
    assert words in row_function.problem(source)
    assert row_function.problem(row_function.EXAMPLE) == ""
