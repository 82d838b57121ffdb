from __future__ import annotations

import errno
import hashlib
import json
import os
from io import BytesIO

import pytest
from django.core.files.uploadedfile import TemporaryUploadedFile
from django.db import IntegrityError

from controlplane.datasets import flow
from controlplane.datasets.locking import held
from controlplane.datasets.mapping import ColumnMapping
from controlplane.datasets.models import Dataset, DatasetVersion
from tests.controlplane.datasets.builders import MAPPING, ROWS, checked, jsonl, ready, uploaded

pytestmark = pytest.mark.django_db


def canonical(version: DatasetVersion) -> list[dict]:
    return [json.loads(line) for line in version.rows_path.read_text().splitlines()]


def test_an_upload_becomes_canonical_rows():
    version = ready()
    assert version.status == DatasetVersion.READY
    assert version.rows == len(ROWS)
    assert version.columns == ["prompt", "answer"]
    assert canonical(version)[1] == {
        "row": 1,
        "prompt": [{"role": "user", "content": "What is 1 plus 1?"}],
        "answer": "2",
    }
    assert version.sha256 == hashlib.sha256(version.rows_path.read_bytes()).hexdigest()


def test_the_columns_are_guessed():
    guess = checked().report["guess"]
    assert (guess["prompt"], guess["answer"], guess["answer_after"]) == ("question", "answer", "####")


def test_a_marker_is_guessed_only_when_every_row_has_it():
    assert checked(jsonl([{"problem": "a", "solution": "1"}])).report["guess"]["answer_after"] == ""


def test_a_system_prompt_goes_first_and_a_row_keeps_its_own():
    rows = [{"question": "a"}, {"question": [{"role": "system", "content": "own"}, {"role": "user", "content": "b"}]}]
    made = canonical(ready(rows, ColumnMapping(prompt="question", system_prompt="ours")))
    assert [row["prompt"][0]["content"] for row in made] == ["ours", "own"]
    assert made[0]["answer"] is None


def test_plain_prompts_stay_text():
    mapping = ColumnMapping(prompt="question", system_prompt="Add.", chat=False)
    assert canonical(ready([{"question": "1+1"}], mapping))[0]["prompt"] == "Add.\n\n1+1"


def test_other_columns_are_kept_and_names_that_mean_something_elsewhere_are_changed():
    rows = [{"question": "q", "answer": 4, "level": 3, "completions": "x", "prompt": "y"}]
    made = canonical(ready(rows, ColumnMapping(prompt="question", answer="answer")))[0]
    assert made["answer"] == "4"
    assert made["level"] == 3
    assert (made["source_completions"], made["source_prompt"]) == ("x", "y")


def test_bad_lines_are_left_out_only_when_somebody_says_so():
    version = checked(jsonl(ROWS) + b"broken\n")
    assert version.status == DatasetVersion.INVALID
    assert flow.leave_bad_lines_out(version)
    version.refresh_from_db()
    flow.apply_mapping(version, ColumnMapping(**(MAPPING.as_dict() | {"leave_out": True})))
    assert version.status == DatasetVersion.READY
    assert version.rows == len(ROWS)


def test_a_mapping_can_leave_out_the_rows_it_does_not_fit():
    rows = [*ROWS, {"question": "no answer"}]
    version = ready(rows, ColumnMapping(**(MAPPING.as_dict() | {"leave_out": True})))
    assert version.status == DatasetVersion.READY
    assert (version.rows, version.report["mapped"]["error_count"]) == (5, 1)


def test_a_mapping_that_fits_no_row_saves_nothing_even_when_rows_may_go():
    version = ready(ROWS, ColumnMapping(prompt="nothing", leave_out=True))
    assert version.status == DatasetVersion.NEEDS_MAPPING
    assert version.report["mapped"]["file_error"] == "No row fits this mapping."


def test_a_ready_version_is_not_mapped_again():
    version = ready()
    assert not flow.ask_for_rows(version, ColumnMapping(prompt="answer"))
    version.refresh_from_db()
    assert version.mapping["prompt"] == "question"


def test_checking_twice_changes_nothing():
    version = checked()
    flow.validate(version)
    version.refresh_from_db()
    assert version.status == DatasetVersion.NEEDS_MAPPING


def test_only_one_worker_checks_a_version():
    version = uploaded()
    with held(version.folder / "lock"):
        flow.validate(version)
    version.refresh_from_db()
    assert (version.status, version.check_started_at) == (DatasetVersion.CHECKING, None)


def test_a_version_deleted_while_its_check_waits_is_left_alone():
    version = uploaded()
    pk = version.pk
    version.dataset.delete()
    version.pk = pk
    flow.validate(version)
    assert not DatasetVersion.objects.exists()


def test_versions_of_one_name_are_numbered():
    assert [uploaded(name="one").number, uploaded(name="one").number] == [1, 2]
    assert Dataset.objects.count() == 1


def test_two_uploads_of_one_new_name_leave_the_first_whole():
    uploaded(name="taken")
    with pytest.raises(flow.NameTaken):
        flow.create_version(None, "taken", BytesIO(b"{}"), "x", new=True)
    assert DatasetVersion.objects.count() == 1
    assert list(flow.incoming_folder().iterdir()) == []


def test_a_file_over_the_limit_by_one_byte_leaves_nothing(settings):
    settings.DATASET_MAX_BYTES = 10
    flow.create_version(None, "fits", BytesIO(b"x" * 10), "x")
    with pytest.raises(flow.TooLarge):
        flow.create_version(None, "over", BytesIO(b"x" * 11), "x")
    assert not Dataset.objects.filter(name="over").exists()
    assert list(flow.incoming_folder().iterdir()) == []


def test_an_upload_that_breaks_off_leaves_nothing():
    class Breaks:
        def read(self, size: int = -1) -> bytes:
            raise OSError(28, os.strerror(28))

    with pytest.raises(flow.NoSpace, match="no space left"):
        flow.create_version(None, "full", Breaks(), "x")
    assert not Dataset.objects.exists()
    assert list(flow.incoming_folder().iterdir()) == []


def test_a_database_that_refuses_leaves_no_file(monkeypatch):
    def refuses(**fields: object) -> None:
        raise IntegrityError

    monkeypatch.setattr(DatasetVersion.objects, "create", refuses)
    with pytest.raises(flow.NameTaken):
        uploaded()
    assert list(flow.incoming_folder().iterdir()) == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("/abs/x.jsonl", "x.jsonl"),
        ("C:\\data\\CON", "CON"),
        ("a\nb\x00c.jsonl", "abc.jsonl"),
        ("evil\u202etxt.jsonl", "eviltxt.jsonl"),
        ("x" * 300, "x" * 255),
        ("; rm -rf ~ #.jsonl", "~ #.jsonl".replace("~ #", "; rm -rf ~ #")),
        ("", "upload"),
        ("..", ".."),
    ],
)
def test_a_file_name_is_only_ever_text(name, shown):
    version = uploaded(file_name=name)
    assert version.file_name == shown
    assert version.source_path.parent.name == str(version.pk)


def test_deleting_takes_the_files_along(django_capture_on_commit_callbacks):
    version = ready()
    folder = version.folder
    with django_capture_on_commit_callbacks(execute=True):
        flow.delete_dataset(version.dataset)
    assert not folder.exists()
    assert not Dataset.objects.exists()


def test_the_check_process_sees_no_secrets(monkeypatch, tmp_path):
    monkeypatch.setenv("REDIS_URL", "unix:///secret")
    monkeypatch.setenv("PYTHONPATH", "/packages")
    seen = {}

    def run(command, **options):
        seen.update(options, command=command)
        raise flow.subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(flow.subprocess, "run", run)
    version = checked()
    assert set(seen["env"]) == {"PATH", "PYTHONPATH", "LANG"}
    assert isinstance(seen["command"], list)
    assert "more memory or time" in version.report["file_error"]


def test_a_check_that_reaches_its_limits_says_so(monkeypatch):
    monkeypatch.setattr(flow, "PROGRAM", ["-c", "raise SystemExit(3)"])
    version = checked()
    assert version.status == DatasetVersion.INVALID
    assert "more memory or time" in version.report["file_error"]


def test_a_check_that_cannot_run_does_not_blame_the_file(monkeypatch):
    monkeypatch.setattr(flow, "PROGRAM", ["-c", "import a_package_that_is_missing"])
    version = checked()
    assert version.status == DatasetVersion.INVALID
    assert "could not run on the server" in version.report["file_error"]


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_an_upload_that_lies_on_disk_is_taken_from_there(monkeypatch, links):
    def refused(*names):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    if not links:
        monkeypatch.setattr(os, "link", refused)
    with TemporaryUploadedFile("upload", "", 0, None) as file:
        file.write(jsonl(ROWS))
        file.flush()
        file.size = file.tell()
        version = flow.create_version(None, f"on disk, {links}", file, "rows.jsonl")
    assert version.source_path.read_bytes() == jsonl(ROWS)
