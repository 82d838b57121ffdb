"""The ways of a version with the real reading process: from an upload to rows, filtered versions, exports."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from contextlib import closing

import pyarrow.parquet as pq
import pytest

from controlplane.catalogue.datasets import actions, archiving, browsing, deriving, exporting
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.pages import lineage
from controlplane.catalogue.datasets.queries import ready_versions
from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter
from tests.controlplane.catalogue.datasets.sources import jsonl
from tests.controlplane.catalogue.datasets.steps import MAPPING, ROWS, checked, ready, uploaded, worked

pytestmark = [pytest.mark.django_db, pytest.mark.processes]

LEVELS = [{**row, "difficulty": "hard" if n % 2 else "easy"} for n, row in enumerate(ROWS * 4)]
LEVELS = [{**row, "question": f"{n}: {row['question']}"} for n, row in enumerate(LEVELS)]
WITH_LEVELS = ColumnMapping(prompt="question", answer="answer", answer_after="####", difficulty="difficulty")


def rows_of(version):
    return pq.read_table(version.folder / files.ROWS).to_pylist()


def test_an_upload_becomes_canonical_rows():
    version = ready()
    assert (version.status, version.rows, version.validation_rows) == (DatasetVersion.READY, 5, 0)
    assert rows_of(version)[1] == {
        "row_id": 1,
        "prompt": [{"role": "user", "content": "What is 1 plus 1?"}],
        "answer": "2",
        "test_cases": [],
        "metadata": "{}",
        "split": "train",
    }
    assert version.sha256 == hashlib.sha256((version.folder / files.ROWS).read_bytes()).hexdigest()
    assert version.ready_at is not None
    assert not (version.folder / files.PROGRESS).exists()


def test_the_source_is_kept_as_it_came_and_known_by_its_hash():
    content = gzip.compress(jsonl(ROWS))
    version = checked(content)
    assert (version.folder / files.SOURCE).read_bytes() == content
    assert version.source_sha256 == hashlib.sha256(content).hexdigest()
    assert version.status == DatasetVersion.NEEDS_MAPPING


def test_a_file_as_humaneval_has_it_is_imported_as_it_is_proposed():
    rows = [
        {
            "task_id": f"Own/{number}",
            "prompt": f'def add_{number}(a):\n    """The sum of a and {number}."""\n',
            "entry_point": f"add_{number}",
            "canonical_solution": f"    total = a + {number}\n    return total\n",
            "test": f"METADATA = {{}}\n\n\ndef check(candidate):\n    assert candidate(1) == {number + 1}\n\n",
        }
        for number in range(5)
    ]
    report = checked(jsonl(rows)).report
    assert report["recognised"]["schema"] == "humaneval"
    assert {problem["kind"] for problem in report["problems"]} <= {"near_duplicate"}
    version = ready(rows, ColumnMapping.from_dict(report["recognised"]["mapping"]))
    assert (version.status, version.rows) == (DatasetVersion.READY, 5)
    row = rows_of(version)[3]
    assert row["answer"] == rows[3]["prompt"] + rows[3]["canonical_solution"].rstrip()
    assert row["prompt"][-1]["content"] == rows[3]["prompt"]
    assert row["test_cases"] == [rows[3]["test"].rstrip() + "\n\ncheck(add_3)\n"]


def test_the_check_waits_for_no_mapping_and_proposes_one():
    report = checked().report
    assert report["recognised"]["mapping"]["prompt"] == "question"
    assert report["columns"][0]["name"] == "question"


def test_a_share_of_the_rows_is_kept_out_of_training():
    version = ready(LEVELS, WITH_LEVELS, share=0.2)
    kept = [row for row in rows_of(version) if row["split"] == "validation"]
    assert version.validation_rows == len(kept) == 4
    assert version.split == {"share": 0.2, "seed": 42}


def test_bad_rows_are_left_out_only_when_somebody_says_so():
    version = checked(jsonl(ROWS) + b"broken\n")
    assert version.status == DatasetVersion.INVALID
    assert version.usable_without_bad_rows
    assert not actions.request_import(version, MAPPING)
    assert actions.leave_bad_rows_out(version)
    version.refresh_from_db()
    assert actions.request_import(version, MAPPING, share=0)
    assert worked(version).status == DatasetVersion.READY
    assert (version.rows, version.mapping["leave_out"], version.report["mapped"]["bad_rows"]) == (5, False, 1)


def test_bad_rows_that_nobody_has_decided_about_are_not_lost_by_mapping_the_file_again():
    again = actions.map_again(None, checked(jsonl(ROWS) + b"broken\n"))
    assert again.status == DatasetVersion.INVALID
    assert again.usable_without_bad_rows
    assert not actions.request_import(again, MAPPING)


def test_a_file_that_can_not_be_read_is_no_choice():
    version = checked(b"\x89PNG\r\n\x1a\n" + b"\0" * 100)
    assert version.status == DatasetVersion.INVALID
    assert version.report["file_error"]["message"]
    assert not version.usable_without_bad_rows
    assert not actions.leave_bad_rows_out(version)


def test_a_mapping_that_fits_no_row_goes_back_to_the_mapping():
    version = ready(ROWS, ColumnMapping(prompt="nothing"))
    assert version.status == DatasetVersion.NEEDS_MAPPING
    assert version.report["mapped"]["usable"] is False
    assert actions.request_import(version, MAPPING)
    assert worked(version).status == DatasetVersion.READY


def test_a_ready_version_never_changes():
    version = ready()
    before = version.sha256
    assert not actions.request_import(version, ColumnMapping(prompt="answer"))
    assert actions.cancel(version) == actions.TOO_LATE
    assert worked(version).sha256 == before
    assert version.mapping["prompt"] == "question"


def test_another_mapping_of_the_same_file_is_a_new_version():
    old = ready()
    new = actions.map_again(None, old)
    assert (new.number, new.parent, new.status) == (2, old, DatasetVersion.NEEDS_MAPPING)
    assert (new.source_sha256, new.mapping["prompt"], "mapped" in new.report) == (old.source_sha256, "question", False)
    actions.request_import(new, ColumnMapping(prompt="answer"), share=0)
    assert worked(new).status == DatasetVersion.READY
    assert rows_of(new)[0]["prompt"][0]["content"] == "Easy. #### 0"
    assert rows_of(old)[0]["prompt"][0]["content"] == "What is 0 plus 0?"


def test_the_same_file_again_is_recognised_and_allowed():
    first, second, other = uploaded(), uploaded(), uploaded(b"{}\n")
    assert lineage.lineage(second).same_file == [first]
    assert lineage.lineage(other).same_file == []
    assert lineage.lineage(DatasetVersion(dataset=first.dataset, pk=10**9)).same_file == []


def test_a_filtered_version_keeps_its_rows_names_and_parts(rf):
    parent = ready(LEVELS, WITH_LEVELS, share=0.2)
    made = worked(deriving.derive(None, parent, RowFilter(difficulty=("hard",)), name="hard ones"))
    assert (made.status, made.number, made.dataset.name) == (DatasetVersion.READY, 1, "hard ones")
    assert made.source == {"filter": {"difficulty": ["hard"]}}
    whole = {row["row_id"]: row for row in rows_of(parent)}
    assert [row["row_id"] for row in rows_of(made)] == list(range(1, 20, 2))
    assert all(row == whole[row["row_id"]] for row in rows_of(made))
    assert made.validation_rows == sum(row["split"] == "validation" for row in rows_of(made))
    told = lineage.lineage(made)
    assert (told.parents, lineage.lineage(parent).children, told.run_count) == ([parent], [made], 0)
    with pytest.raises(DatasetError, match="derived from another version"):
        actions.map_again(None, made)


def test_a_filter_that_means_no_row_is_told_and_leaves_no_rows():
    made = worked(deriving.derive(None, ready(), RowFilter(row_ids=(99,))))
    assert made.status == DatasetVersion.INVALID
    assert "No row" in made.report["file_error"]["message"]
    assert not (made.folder / files.ROWS).exists()


def test_a_filter_without_a_condition_makes_no_version():
    parent = ready()
    with pytest.raises(DatasetError, match="every row"):
        deriving.derive(None, parent, RowFilter())
    assert DatasetVersion.objects.count() == 1


def test_rows_are_looked_at_by_page_by_filter_and_by_name():
    version = ready(LEVELS, WITH_LEVELS)
    page = browsing.page(version, start=2, limit=3)
    assert [row["row_id"] for row in page["rows"]] == [2, 3, 4]
    assert [row["position"] for row in page["rows"]] == [2, 3, 4]
    assert page["next"] == 5
    assert browsing.page(version, start=19, limit=3)["next"] is None
    only_hard = RowFilter(difficulty=("hard",))
    hard = browsing.page(version, only_hard, limit=2)
    assert [row["row_id"] for row in hard["rows"]] == [1, 3]
    assert browsing.page(version, only_hard, start=hard["next"], limit=1)["rows"][0]["row_id"] == 5
    assert browsing.count(version, only_hard) == 10
    assert browsing.row(version, 7)["row"]["prompt"][0]["content"] == LEVELS[7]["question"]
    assert browsing.row(version, 700)["row"] is None


def content_of(answer):
    with closing(answer):
        return b"".join(answer.streaming_content)


def test_a_version_is_exported_as_lines_and_as_parquet(rf):
    version = ready(LEVELS, WITH_LEVELS)
    answer = exporting.export(rf.get("/"), version, "jsonl", RowFilter())
    lines = [json.loads(line) for line in content_of(answer).splitlines()]
    assert len(lines) == 20
    assert lines[3]["row_id"] == 3
    assert 'filename="data' in answer.headers["Content-Disposition"]
    whole = content_of(exporting.export(rf.get("/"), version, "parquet", RowFilter()))
    assert hashlib.sha256(whole).hexdigest() == version.sha256
    some = exporting.export(rf.get("/"), version, "parquet", RowFilter(difficulty=("easy",)))
    assert pq.read_table(io.BytesIO(content_of(some))).num_rows == 10


def test_an_export_that_can_not_begin_is_told_before_it_begins(rf):
    version = ready()
    (version.folder / files.ROWS).unlink()
    for kind in ("jsonl", "parquet"):
        with pytest.raises(DatasetError):
            exporting.export(rf.get("/"), version, kind, RowFilter())
    with pytest.raises(DatasetError, match="JSON Lines or as Parquet"):
        exporting.export(rf.get("/"), version, "pickle", RowFilter())


def test_nothing_is_looked_at_or_exported_before_there_are_rows(rf):
    version = checked()
    for ask in (
        lambda v: browsing.page(v, limit=1),
        lambda v: browsing.row(v, 1),
        lambda v: exporting.export(rf.get("/"), v, "jsonl", RowFilter()),
    ):
        with pytest.raises(DatasetError, match="no rows yet"):
            ask(version)


def test_an_archived_version_is_not_offered_for_launches(rf, django_user_model):
    request = rf.get("/")
    request.user = django_user_model.objects.create_user("ann")
    version = ready()
    assert list(ready_versions(request)) == [version]
    assert archiving.set_archived(version, True)
    assert not archiving.set_archived(version, True)
    assert list(ready_versions(request)) == []
    assert archiving.set_archived(version, False)
    assert list(ready_versions(request)) == [version]


def texts(value):
    if isinstance(value, dict):
        return [*value, *texts(list(value.values()))]
    return [text for inner in value for text in texts(inner)] if isinstance(value, list) else [str(value)]


def test_odd_text_in_a_report_is_kept_by_every_database():
    odd = {"question": "a\x00b\ud800", "ans\x00wer": "x", "list": ["\x00"]}
    version = checked(jsonl([odd]) + b"\xff\x00\n")
    kept = "".join(texts(version.report) + version.columns)
    assert "format" in kept
    assert "\x00" not in kept
    assert kept.encode()  # no half of a surrogate pair
