"""The list, the ways in which a dataset comes here, and a version while a worker is at it."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from controlplane.catalogue.datasets import archiving
from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.parsing.formats import NAMES
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile
from controlplane.catalogue.datasets.receiving import incoming_folder
from controlplane.platform.accounts.models import Role
from runs.engine.models import Run
from tests.controlplane.catalogue.datasets.sources import jsonl
from tests.controlplane.catalogue.datasets.steps import ROWS, checked, ready, uploaded, worked
from tests.controlplane.people import make_user, operator, signed_in, viewer

pytestmark = pytest.mark.django_db

HOSTILE = (
    '<script>alert(1)</script><img src=x onerror="alert(2)">',
    "\"><svg/onload=alert(3)>'",
    "{{ 7|add:7 }}{% load x %}",
    "javascript:alert(4)",
    "</pre></textarea></select><b>bold</b>",
    "&lt;b&gt;",
)


def at(version: DatasetVersion, part: str = "") -> str:
    return f"/datasets/{version.dataset_id}/{version.number}/{part}"


def send(client: Client, content: bytes, *, name: str = "sums", file_name: str = "rows.jsonl", to: str = "upload/"):
    return client.post(f"/datasets/{to}", {"name": name, "file": SimpleUploadedFile(file_name, content)})


# --- the list ---------------------------------------------------------------------------------------------------


def test_an_empty_list_offers_the_first_step_to_those_who_may() -> None:
    assert b"New dataset" in operator().get("/datasets/").content
    page = viewer().get("/datasets/").content
    assert b"No datasets yet" in page
    assert b"New dataset" not in page


def test_the_list_has_the_newest_version_of_each_dataset() -> None:
    first = ready()
    uploaded(name=first.dataset.name, file_name="second.jsonl")
    page = viewer().get("/datasets/").content.decode()
    assert "second.jsonl" in page
    assert page.count(f'href="/datasets/{first.dataset_id}/"') == 1
    assert "v2" in page
    assert 'hx-trigger="every 2s"' in page  # a worker has something to do


def test_the_list_is_searched_by_name_source_and_person() -> None:
    uploaded(name="apples", file_name="x.jsonl")
    uploaded(name="pears", file_name="y.csv")
    assert named(viewer(), "?q=apples") == {"apples"}
    assert named(viewer(), "?q=Y.CSV") == {"pears"}
    page = viewer().get("/datasets/?q=plums").content.decode()
    assert "No dataset matches" in page
    assert 'value="plums"' in page


def test_what_is_archived_is_behind_a_switch() -> None:
    version, other = ready(), ready()
    archiving.set_archived(version, True)
    assert named(viewer()) == {other.dataset.name}
    assert named(viewer(), "?archived=1") == {version.dataset.name, other.dataset.name}
    assert "1 archived not shown" in viewer().get("/datasets/").content.decode()
    archiving.set_archived(other, True)
    assert "Every dataset is archived" in viewer().get("/datasets/").content.decode()


def test_an_archived_newest_version_leaves_its_elder_in_the_list() -> None:
    first = ready()
    second = worked(uploaded(name=first.dataset.name))
    DatasetVersion.objects.filter(pk=second.pk).update(archived_at=timezone.now())
    page = viewer().get("/datasets/").content.decode()
    assert named(viewer()) == {first.dataset.name}
    assert "v1" in page


def named(client: Client, query: str = "") -> set[str]:
    page = client.get(f"/datasets/{query}").content.decode()
    return {name for name in Dataset.objects.values_list("name", flat=True) if f">{name}</a>" in page}


# --- new datasets -----------------------------------------------------------------------------------------------


def test_an_upload_leads_to_its_page_which_asks_until_it_is_checked() -> None:
    client = operator()
    answer = send(client, jsonl(ROWS))
    page = client.get(answer["Location"]).content.decode()
    assert 'hx-trigger="every 1s"' in page
    assert "This continues in the background" in page
    worked(DatasetVersion.objects.get())
    page = client.get(answer["Location"]).content.decode()
    assert "5 rows, no problem" in page
    assert "every 1s" not in page


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"id": ""}, "This field is required"),
        ({"id": "https://example.org/x"}, "URLs are not supported"),
        ({"id": "a/b/c"}, "owner/name"),
        ({"id": "a/b", "split": "../x"}, "split"),
        ({"id": "a/b", "revision": "a..b"}, "branch"),
    ],
)
def test_a_hub_dataset_that_is_none_is_refused_and_what_was_typed_stays(fields: dict[str, str], said: str) -> None:
    typed = {"config": "some config", "split": "train", "revision": "main", "name": "mine", **fields}
    answer = operator().post("/datasets/hub/", typed)
    page = answer.content.decode()
    assert (answer.status_code, said in page) == (422, True)
    assert 'value="some config"' in page
    assert 'value="mine"' in page
    assert not Dataset.objects.exists()


def test_a_hub_dataset_is_fetched_by_the_worker() -> None:
    typed = {"id": "openai/gsm8k", "config": "main", "split": "train", "revision": "main", "name": ""}
    answer = operator().post("/datasets/hub/", typed)
    version = DatasetVersion.objects.get()
    assert (version.status, version.dataset.name) == (DatasetVersion.FETCHING, "gsm8k main")
    page = operator().get(answer["Location"]).content.decode()
    assert "openai/gsm8k" in page
    assert "Fetching" in page


def test_a_path_has_to_lie_in_a_folder_that_may_be_read(settings, tmp_path) -> None:
    assert "No folder on this server may be read" in operator().get("/datasets/path/").content.decode()
    settings.DATASET_ROOTS = (str(tmp_path),)
    (tmp_path / "sums.jsonl").write_bytes(jsonl(ROWS))
    answer = operator().post("/datasets/path/", {"path": "/etc/passwd", "name": ""})
    page = answer.content.decode()
    assert (answer.status_code, 'value="/etc/passwd"' in page) == (422, True)
    assert "Only these folders" in page
    assert operator().post("/datasets/path/", {"path": str(tmp_path / "sums.jsonl"), "name": ""}).status_code == 302
    assert Dataset.objects.get().name == "sums"


def test_an_empty_file_and_no_file_are_refused_before_anything_is_stored() -> None:
    client = operator()
    empty = send(client, b"")
    assert (empty.status_code, b"The file is empty." in empty.content) == (422, True)
    assert b"Choose a file." in client.post("/datasets/upload/", {"name": "x"}).content
    assert b"Choose a file." in client.post("/datasets/upload/", {"name": "x", "file": "../etc/passwd"}).content
    assert not Dataset.objects.exists()


def test_a_file_over_the_limit_is_stopped_and_leaves_nothing(settings) -> None:
    settings.DATASET_MAX_BYTES = 1000
    answer = send(operator(), b"x" * 200_000)
    assert answer.status_code == 422
    assert b"larger than" in answer.content
    assert b'value="sums"' in answer.content
    assert not Dataset.objects.exists()
    assert list(incoming_folder().iterdir()) == []


def test_a_name_that_is_taken_is_said_beside_the_field_and_before_the_transfer() -> None:
    client = operator()
    send(client, jsonl(ROWS))
    answer = send(client, jsonl(ROWS))
    assert (answer.status_code, b"already a dataset" in answer.content) == (422, True)
    assert DatasetVersion.objects.count() == 1
    assert "already a dataset" in client.get("/datasets/name/?name=sums").json()["problem"]
    assert "already a dataset" in client.get("/datasets/name/?file=sums.jsonl.gz").json()["problem"]
    assert client.get("/datasets/name/?name=others&file=sums.jsonl").json() == {"problem": ""}


@pytest.mark.parametrize(
    ("file_name", "name"),
    [("../gsm8k train.jsonl", "gsm8k train"), ("rows.jsonl.gz", "rows"), ("a.b.csv", "a.b"), ("x" * 200, "x" * 80)],
)
def test_without_a_name_the_file_gives_it(file_name: str, name: str) -> None:
    send(operator(), jsonl(ROWS), name="", file_name=file_name)
    assert Dataset.objects.get().name == name


def test_a_new_version_keeps_the_old_one() -> None:
    client, first = operator(), ready()
    send(client, jsonl(ROWS), to=f"{first.dataset_id}/upload/")
    assert [v.number for v in first.dataset.versions.all()] == [2, 1]
    assert client.get(at(first)).status_code == 200


def test_a_file_seen_before_is_told_with_a_link() -> None:
    first = ready()
    again = uploaded(jsonl(ROWS), name="again")
    page = viewer().get(at(again)).content.decode()
    assert "was added before" in page
    assert f'href="{at(first)}"' in page


# --- while a worker is at it --------------------------------------------------------------------------------------


def test_progress_is_shown_and_the_page_drawn_anew_at_the_end() -> None:
    version, client = uploaded(), viewer()
    DatasetVersion.objects.update(check_started_at=timezone.now())
    told = {"stage": "second pass", "bytes": 30_000_000, "of": 120_000_000, "rows": 812_345, "mb_per_s": 38.2}
    (version.folder / files.PROGRESS).write_text(json.dumps(told))
    page = client.get(at(version, "state/")).content.decode()
    for words in ('value="0.2500"', "25", "812,345", "38.2", "Second pass"):
        assert words in page
    ProgressFile(version.folder, "writing", 0, 12).report(0, 3, force=True)
    page = client.get(at(version, "state/")).content.decode()
    assert 'value="0.2500"' in page
    assert "Writing the rows" in page
    assert ">3 of 12<" in page
    assert "MiB" not in page
    answer = client.get(at(version, "state/"))
    assert "HX-Refresh" not in answer
    worked(version)
    assert client.get(at(version, "state/"))["HX-Refresh"] == "true"


def test_a_page_whose_version_was_cancelled_elsewhere_is_drawn_anew() -> None:
    version, client = uploaded(), viewer()
    address = at(version, "state/")
    version.dataset.delete()
    assert client.get(address, headers={"HX-Request": "true"})["HX-Refresh"] == "true"
    assert client.get(address).status_code == 404


def test_a_worker_that_is_late_is_spoken_of() -> None:
    version = uploaded()
    client = viewer()
    assert b"has not started this" not in client.get(at(version, "state/")).content
    DatasetVersion.objects.update(queued_at=timezone.now() - timedelta(seconds=40))
    assert b"waiting for the background worker for 40 s" in client.get(at(version, "state/")).content


def test_a_check_can_be_cancelled_by_operators(django_capture_on_commit_callbacks) -> None:
    version = uploaded()
    assert b"Cancel" in operator().get(at(version)).content
    assert b"Cancel</button>" not in viewer().get(at(version)).content
    with django_capture_on_commit_callbacks(execute=True):
        answer = operator().post(at(version, "cancel/"), follow=True)
    assert not Dataset.objects.exists()
    assert "rows.jsonl was deleted" in answer.content.decode()
    assert not version.folder.exists()


# --- what is shown is text ----------------------------------------------------------------------------------------


def test_text_of_a_dataset_is_shown_as_text(subtests: pytest.Subtests) -> None:
    for nasty in HOSTILE:
        with subtests.test(nasty=nasty):
            rows = [{"question": nasty, "answer": f"#### {nasty}", nasty: nasty, "tags": [nasty]} for _ in range(3)]
            ready_one, bad, needs = ready(rows), checked(f"{nasty}\n{nasty}\n".encode()), checked(jsonl(rows))
            named_so = uploaded(name=nasty[:80], file_name=f"{nasty}.jsonl")
            client = operator()
            pages = [at(one) for one in (ready_one, bad, needs, named_so)] + ["/datasets/"]
            pages += [at(ready_one, part) for part in ("rows/", "rows/0/", "report/")]
            pages += [at(bad, "report/?kind=malformed_json"), at(needs, "report/")]
            for address in pages:
                page = client.get(address).content.decode()
                for piece in ("<script>alert", "<img src=x", "<svg/onload", "<b>bold", 'href="javascript:', "14{%"):
                    assert piece not in page, (address, piece)


# --- who may ------------------------------------------------------------------------------------------------------


def test_viewers_add_nothing(subtests: pytest.Subtests) -> None:
    for path in ["upload/", "rows/", "hub/", "path/", "1/upload/", "1/rows/", "1/hub/", "1/path/", "name/"]:
        with subtests.test(path=path):
            assert viewer().get(f"/datasets/{path}").status_code == 403


ACTS = ("mapping", "example", "leave-out", "again", "cancel", "try-again", "archive", "unarchive", "delete", "derive")


def test_acts_take_an_operator_and_a_post(subtests: pytest.Subtests) -> None:
    for path in [f"1/1/{act}/" for act in ACTS]:
        with subtests.test(path=path):
            assert viewer().post(f"/datasets/{path}").status_code == 403
            assert operator().get(f"/datasets/{path}").status_code == 405
            assert operator().post(f"/datasets/{path}").status_code == 404


@pytest.mark.parametrize("kind", NAMES)
def test_each_sample_file_is_recognised_and_imported_as_it_is(kind: str) -> None:
    client = operator()
    file = client.get(f"/datasets/sample.{kind}")
    assert file["Content-Disposition"] == f'attachment; filename="sample.{kind}"'
    version = checked(file.content)
    assert (version.report["format"]["kind"], version.rows, version.report["kinds"]) == (kind, 8, [])
    assert version.report["recognised"]["schema"] == "question_answer"
    assert client.get("/datasets/sample.xls").status_code == 404


def test_typed_rows_are_checked_like_a_file() -> None:
    client = operator()
    answer = client.post("/datasets/rows/", {"rows": "question,answer\r\n1 + 1?,2\r\n", "name": "few"})
    version = worked(DatasetVersion.objects.get(dataset__name="few"))
    assert answer["Location"] == at(version)
    assert (version.status, version.rows) == (DatasetVersion.NEEDS_MAPPING, 1)
    client.post(f"/datasets/{version.dataset_id}/rows/", {"rows": '{"question": "1 + 1?", "answer": "2"}'})
    assert version.dataset.versions.count() == 2


@pytest.mark.parametrize("rows", ["", " \r\n ", "a\0b"])
def test_rows_that_can_not_be_stored_are_refused_at_their_field(rows: str) -> None:
    page = operator().post("/datasets/rows/", {"rows": rows, "name": "kept name"})
    assert page.status_code == 422
    assert "kept name" in page.content.decode()
    assert not Dataset.objects.exists()


def test_an_upload_without_a_csrf_token_stores_nothing() -> None:
    client = signed_in(user=make_user(Role.OPERATOR), csrf=True)
    assert send(client, jsonl(ROWS)).status_code == 403
    assert not Dataset.objects.exists()
    assert list(incoming_folder().iterdir()) == []


def test_a_form_of_a_thousand_parts_is_refused() -> None:
    answer = operator().post("/datasets/upload/", {f"f{n}": "x" for n in range(1001)})
    assert answer.status_code == 400


# --- the end of a version -----------------------------------------------------------------------------------------


def test_a_dataset_that_runs_use_is_archived_and_not_deleted() -> None:
    version = ready()
    Run.objects.create(name="r", owner=make_user(), spec={}, dataset_version=version)
    answer = operator().post(at(version, "delete/"), follow=True)
    assert b"Archive its versions instead" in answer.content
    operator().post("/deleted/dataset/", {"id": version.dataset_id})
    assert Dataset.objects.exists()
    assert version.rows_path.exists()
    page = operator().post(at(version, "archive/"), follow=True).content.decode()
    assert "Version 1 is no longer offered" in page
    assert "Train on it" not in page
    assert "Train on it" in operator().post(at(version, "unarchive/"), follow=True).content.decode()


def test_deleting_the_only_version_deletes_the_dataset() -> None:
    version = ready()
    asked = operator().post(at(version, "delete/"), follow=True).content.decode()
    assert "1 version with" in asked
    operator().post("/deleted/dataset/", {"id": version.dataset_id})
    assert not Dataset.objects.exists()
    assert version.rows_path.exists()


def test_deleting_one_of_two_versions_keeps_the_other() -> None:
    version = ready()
    uploaded(name=version.dataset.name)
    operator().post(at(version, "delete/"))
    assert [v.number for v in Dataset.objects.get().versions.all()] == [2]


def test_what_failed_by_the_servers_fault_can_be_tried_again() -> None:
    version = uploaded()
    why = {"kind": "disk", "message": "The disk is full.", "advice": "Make room."}
    DatasetVersion.objects.update(status="invalid", report={"file_error": why})
    page = operator().get(at(version)).content.decode()
    assert "The disk is full." in page
    assert "Try again" in page
    operator().post(at(version, "try-again/"))
    assert DatasetVersion.objects.get().status == DatasetVersion.CHECKING
