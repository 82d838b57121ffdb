from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from controlplane.accounts.models import Role
from controlplane.datasets import flow
from controlplane.datasets.models import Dataset, DatasetVersion
from runs.models import Run
from tests.controlplane.datasets.builders import ROWS, checked, jsonl, ready, uploaded
from tests.controlplane.people import make_user, operator, signed_in, viewer

pytestmark = pytest.mark.django_db

NASTY = '<script>alert(1)</script><img src=x onerror="alert(2)">'


def send(client: Client, content: bytes, *, name: str = "sums", file_name: str = "rows.jsonl", to: str = "upload/"):
    return client.post(f"/datasets/{to}", {"name": name, "file": SimpleUploadedFile(file_name, content)})


def test_an_empty_list_offers_the_first_step_to_those_who_may():
    assert b"Upload dataset" in operator().get("/datasets/").content
    page = viewer().get("/datasets/").content
    assert b"No datasets yet" in page
    assert b"Upload dataset" not in page


def test_an_upload_leads_to_its_page_which_asks_until_it_is_checked():
    client = operator()
    answer = send(client, jsonl(ROWS))
    page = client.get(answer["Location"]).content.decode()
    assert 'hx-trigger="every 1s"' in page
    version = DatasetVersion.objects.get()
    flow.validate(version)
    page = client.get(answer["Location"]).content.decode()
    assert "5 rows read" in page
    assert "every 1s" not in page


def test_the_way_to_a_ready_dataset():
    client, version = operator(), checked()
    at = f"/datasets/{version.dataset_id}/1/"
    fields = {"prompt": "question", "answer": "answer", "answer_after": "####", "chat": "chat", "system_prompt": ""}
    assert b"What is 0 plus 0?" in client.get(f"{at}example/", fields).content
    assert client.post(f"{at}mapping/", fields).status_code == 302
    version.refresh_from_db()
    flow.validate(version)
    page = client.get(at).content.decode()
    assert "5 rows, ready to train on" in page
    assert client.get("/datasets/").status_code == 200


def test_a_worker_that_is_late_is_spoken_of():
    version = uploaded()
    at = f"/datasets/{version.dataset_id}/1/state/"
    client = viewer()
    assert b"has not taken this up" not in client.get(at).content
    DatasetVersion.objects.update(queued_at=timezone.now() - timedelta(seconds=40))
    assert b"has not taken this up for 40 s" in client.get(at).content


def test_the_example_follows_the_form_and_says_what_does_not_fit():
    client, version = operator(), checked(jsonl([{"q": "a", "n": 4}]))
    at = f"/datasets/{version.dataset_id}/1/example/"
    fields = {"prompt": "q", "answer": "n", "chat": "chat", "answer_after": "", "system_prompt": "Be brief."}
    page = client.get(at, fields).content.decode()
    assert "Be brief." in page
    assert "no ## in it" in client.get(at, fields | {"answer_after": "##"}).content.decode()
    assert "is a number" in client.get(at, fields | {"prompt": "n", "answer": ""}).content.decode()
    assert "same column" in client.get(at, fields | {"answer": "q"}).content.decode()


@pytest.mark.parametrize("change", [{"prompt": "nothing"}, {"prompt": ""}, {"chat": "x"}, {"answer": "question"}])
def test_a_mapping_form_with_a_mistake_is_shown_again(change):
    version = checked()
    fields = {"prompt": "question", "answer": "answer", "answer_after": "", "chat": "chat", "system_prompt": ""}
    answer = operator().post(f"/datasets/{version.dataset_id}/1/mapping/", fields | change)
    assert answer.status_code == 400
    assert b"errorlist" in answer.content
    version.refresh_from_db()
    assert version.status == DatasetVersion.NEEDS_MAPPING


def test_bad_lines_are_shown_by_kind_and_can_be_left_out():
    client, version = operator(), checked(jsonl(ROWS) + b"broken\n" + b"{}\n")
    at = f"/datasets/{version.dataset_id}/1/"
    page = client.get(at).content.decode()
    assert "2 of 7 lines can&#x27;t be read" in page or "2 of 7 lines can't be read" in page
    assert "line 6" in page
    assert "Leave out the 2 bad lines, keep 5" in page
    client.post(f"{at}leave-out/")
    assert "2 bad lines left out" in client.get(at).content.decode()


def test_an_empty_file_and_no_file_are_refused_before_anything_is_stored():
    client = operator()
    empty = send(client, b"")
    assert (empty.status_code, b"The file is empty." in empty.content) == (400, True)
    assert b"Choose a file." in client.post("/datasets/upload/", {"name": "x"}).content
    assert b"Choose a file." in client.post("/datasets/upload/", {"name": "x", "file": "../etc/passwd"}).content
    assert not Dataset.objects.exists()


def test_a_file_over_the_limit_is_stopped_and_leaves_nothing(settings):
    settings.DATASET_MAX_BYTES = 1000
    answer = send(operator(), b"x" * 200_000)
    assert answer.status_code == 400
    assert b"The file is larger than" in answer.content
    assert not Dataset.objects.exists()
    assert list(flow.incoming_folder().iterdir()) == []


def test_a_name_that_is_taken_is_said_beside_the_field():
    client = operator()
    send(client, jsonl(ROWS))
    answer = send(client, jsonl(ROWS))
    assert (answer.status_code, b"already a dataset" in answer.content) == (400, True)
    assert DatasetVersion.objects.count() == 1


def test_without_a_name_the_file_gives_it():
    send(operator(), jsonl(ROWS), name="", file_name="../gsm8k train.jsonl")
    assert Dataset.objects.get().name == "gsm8k train"


def test_a_new_version_keeps_the_old_one():
    client, first = operator(), ready()
    send(client, jsonl(ROWS), to=f"{first.dataset_id}/upload/")
    assert [v.number for v in first.dataset.versions.all()] == [2, 1]
    assert client.get(f"/datasets/{first.dataset_id}/1/").status_code == 200


def test_the_same_file_can_be_mapped_again_as_a_new_version():
    version = ready()
    operator().post(f"/datasets/{version.dataset_id}/1/again/")
    again = version.dataset.versions.get(number=2)
    assert again.source_path.read_bytes() == version.source_path.read_bytes()


@pytest.mark.parametrize("what", ["", "1/"])
def test_a_dataset_that_runs_use_is_not_deleted(what):
    version = ready()
    Run.objects.create(name="r", owner=make_user(), spec={}, dataset_version=version)
    operator().post(f"/datasets/{version.dataset_id}/{what}delete/", follow=True)
    assert DatasetVersion.objects.filter(pk=version.pk).exists()
    assert version.rows_path.exists()


def test_deleting_the_only_version_deletes_the_dataset():
    version = ready()
    operator().post(f"/datasets/{version.dataset_id}/1/delete/")
    assert not Dataset.objects.exists()


def test_deleting_one_of_two_versions_keeps_the_other():
    version = ready()
    uploaded(name=version.dataset.name)
    operator().post(f"/datasets/{version.dataset_id}/1/delete/")
    assert [v.number for v in Dataset.objects.get().versions.all()] == [2]


def test_text_of_a_dataset_is_shown_as_text():
    rows = [{"question": NASTY, "answer": f"#### {NASTY}", NASTY: 1}]
    version = ready(rows)
    bad = checked(f"{NASTY}\n".encode())
    needs = checked(jsonl(rows))
    uploaded(name=NASTY, file_name=f"{NASTY}.jsonl")
    client = operator()
    for one in (version, bad, needs):
        page = client.get(f"/datasets/{one.dataset_id}/1/").content.decode()
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in client.get("/datasets/").content.decode()


@pytest.mark.parametrize("path", ["upload/", "1/upload/", "1/1/example/"])
def test_viewers_do_not_upload(path):
    assert viewer().get(f"/datasets/{path}").status_code == 403


@pytest.mark.parametrize("path", ["1/delete/", "1/1/mapping/", "1/1/leave-out/", "1/1/again/", "1/1/delete/"])
def test_acts_take_an_operator_and_a_post(path):
    assert viewer().post(f"/datasets/{path}").status_code == 403
    assert operator().get(f"/datasets/{path}").status_code == 405
    assert operator().post(f"/datasets/{path}").status_code == 404


def test_an_upload_without_a_csrf_token_stores_nothing():
    client = signed_in(user=make_user(Role.OPERATOR), csrf=True)
    assert send(client, jsonl(ROWS)).status_code == 403
    assert not Dataset.objects.exists()
    assert list(flow.incoming_folder().iterdir()) == []


def test_a_form_of_a_thousand_parts_is_refused():
    answer = operator().post("/datasets/upload/", {f"f{n}": "x" for n in range(1001)})
    assert answer.status_code == 400


def test_the_page_is_drawn_anew_when_the_check_is_through():
    version, client = uploaded(), viewer()
    at = f"/datasets/{version.dataset_id}/1/state/"
    assert "HX-Refresh" not in client.get(at)
    flow.validate(version)
    assert client.get(at)["HX-Refresh"] == "true"
