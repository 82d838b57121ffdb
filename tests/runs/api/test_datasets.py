"""Datasets by the API, beyond the upload of a file."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
from tests.controlplane.catalogue.datasets.steps import worked
from tests.runs.api.clients import Program

pytestmark = pytest.mark.django_db
ROWS = '{"q": "1+1", "a": "2"}\n{"q": "1+2", "a": "3"}\n'


@pytest.fixture(autouse=True)
def data_dir(settings: Settings, tmp_path: object) -> None:
    settings.DATA_DIR = tmp_path


def typed(program: Program) -> int:
    answer = program.post("datasets/rows", {"rows": ROWS, "name": "sums"})
    assert answer.status_code == 201, answer.json()
    number: int = answer.json()["item"]["dataset"]
    return number


def test_rows_become_a_dataset_and_more_rows_a_version_of_its_name() -> None:
    program = Program()
    dataset = typed(program)
    assert program.post(f"datasets/{dataset}/rows", {"rows": ROWS}).json()["item"]["version"] == 2
    assert program.post(f"datasets/{dataset}/rows", {"rows": ROWS, "name": "x"}).json()["error"]["where"] == "name"
    assert program.post("datasets/rows", {"rows": " "}).json()["error"]["where"] == "rows"


def test_datasets_come_from_the_hub_and_from_reasoning_gym() -> None:
    program = Program()
    hub = program.post("datasets/hub", {"id": "openai/gsm8k", "config": "main"}).json()["item"]
    tasks = program.post("datasets/tasks", {"families": ["leg_counting"], "rows": 10}).json()["item"]
    assert (hub["name"], tasks["name"]) == ("gsm8k main", "leg_counting")
    assert {row.source_kind for row in DatasetVersion.objects.all()} == {DatasetVersion.HUB, DatasetVersion.TASKS}


@pytest.mark.parametrize(
    ("way", "body", "where"),
    [
        ("hub", {"id": "a/b", "revision": "a..b"}, "id"),
        ("path", {"path": "/etc/passwd"}, "path"),
        ("tasks", {"families": ["nothing"]}, "families"),
        ("tasks", {"families": ["leg_counting"], "level": 99}, "level"),
    ],
)
def test_a_wrong_source_is_named_and_nothing_is_made(way: str, body: dict[str, object], where: str) -> None:
    answer = Program().post(f"datasets/{way}", body)
    assert (answer.status_code, answer.json()["error"]["where"]) == (422, where)
    assert not Dataset.objects.exists()


def test_a_version_is_cancelled_and_its_dataset_deleted() -> None:
    program = Program()
    dataset = typed(program)
    program.post(f"datasets/{dataset}/rows", {"rows": ROWS})
    assert program.post(f"datasets/{dataset}/2/cancel").json() == {"outcome": "deleted"}
    assert program.post(f"datasets/{dataset}/1/try-again").status_code == 409
    assert program.delete(f"datasets/{dataset}").status_code == 204
    assert not Dataset.objects.exists()


def test_rows_are_previewed_mapped_and_derived() -> None:
    program = Program()
    path = f"datasets/{typed(program)}/1"
    assert program.post(f"{path}/derive", {"rows": [1]}).status_code == 409
    worked(DatasetVersion.objects.get())
    wanted = {"values": {"prompt": "q", "answer": "a"}}
    shown = program.post(f"{path}/preview", wanted)
    assert shown.status_code == 200, shown.json()
    assert [each["rows"][0]["answer"] for each in shown.json()["items"]] == ["2", "3"]
    assert program.post(f"{path}/preview", {"values": {"surprise": 1}}).json()["error"]["where"] == "values"
    assert program.post(f"{path}/mapping", {"values": {**wanted["values"], "share": 0}}).status_code == 200
    worked(DatasetVersion.objects.get())
    first = program.get(f"{path}/rows").json()["items"][0]["row_id"]
    derived = program.post(f"{path}/derive", {"rows": [first], "name": "one"})
    assert derived.status_code == 201, derived.json()
    assert worked(DatasetVersion.objects.get(dataset__name="one")).rows == 1
    crossed = program.post(f"{path}/derive", {"filter": {"at_least": 9, "at_most": 1}})
    assert (crossed.status_code, crossed.json()["error"]["where"]) == (422, "filter.at_most")
