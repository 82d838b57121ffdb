"""Values that one database takes and another refuses: no host is answered 500 for one for ever, and no page breaks."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.test.client import MULTIPART_CONTENT

from controlplane.catalogue.datasets import actions, worker
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.hardware.models import Host, ModelInspection
from controlplane.platform.accounts.models import Role, User
from controlplane.platform.http.tokens import attempt_token
from runs.engine.models import Attempt, Run
from runs.insight.live import frames
from runs.insight.live.frames import FrameExtras, StreamCursor
from runs.insight.metrics import folding
from runs.intake.host_api import ingest
from tests.host_tokens import host_token
from tests.runs.builders import a_host, an_attempt, event, train

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]
BEYOND = 2**40
FORM = "application/x-www-form-urlencoded"
ODD = '"a\\u0000b \\ud800 c"'
"""NUL and half a character, as JSON writes them."""


def post(client: Client, path: str, body: str, token: str) -> int:
    headers = {"authorization": f"Bearer {token}"}
    return client.post(path, body, content_type="application/json", headers=headers).status_code


def to_attempt(client: Client, what: str, body: str) -> int:
    attempt = Attempt.objects.get()
    return post(client, f"/api/attempts/{attempt.pk}/{what}", body, attempt_token(attempt.pk))


def line(kind: str, data: str) -> str:
    """A batch of one line."""
    return f'{{"lines": [{{"seq": 1, "t": 1.0, "kind": "{kind}", "step": null, "data": {data}}}]}}'


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("sync", line("training", f'{{"max_steps": {BEYOND}, "step": 0}}')),
        ("sync", line("training", f'{{"max_steps": 5, "step": {BEYOND}}}')),
        ("sync", line("training", '{"max_steps": 5, "step": -1}')),
        ("sync", line("checkpoint", f'{{"step": {10**400}, "path": "x"}}')),
        ("samples", f'{{"first_line": 1, "lines": [{{"step": {BEYOND}}}]}}'),
        ("samples", '{"first_line": 1, "lines": [{"step": true}]}'),
        ("claim", f'{{"schema": 1, "host": "box", "pid": {BEYOND}, "boot_id": "b"}}'),
    ],
)
def test_a_number_that_no_column_holds_is_refused_by_its_place(client: Client, what: str, body: str) -> None:
    an_attempt()
    assert to_attempt(client, what, body) == 400


def test_odd_text_of_a_supervisor_is_stored(client: Client) -> None:
    an_attempt()
    assert to_attempt(client, "sync", line("note", f'{{"text": {ODD}}}')) == 200
    assert to_attempt(client, "samples", f'{{"first_line": 1, "lines": [{{"step": 1, "prompt": {ODD}}}]}}') == 200
    assert to_attempt(client, "not_launched", f'{{"detail": {ODD}}}') == 200


def test_odd_text_of_a_host_is_stored(client: Client) -> None:
    gpu = f'{{"index": 0, "name": {ODD}, "memory_mib": 1, "used_mib": 0}}'
    body = f'{{"name": "box", "inventory": {{"gpus": [{gpu}], "boot_id": {ODD}}}, "trainer_schema": null}}'
    assert post(client, "/api/hosts/announce", body, host_token("box")) == 200
    assert "\0" not in json.dumps(Host.objects.get().inventory)


def test_odd_text_in_an_answer_about_a_model_is_stored(client: Client) -> None:
    asked = ModelInspection.objects.create(host=a_host("box"), model="/m")
    path = f"/api/inspections/{asked.pk}"
    assert post(client, path, f'{{"answer": {{"error": {ODD}}}}}', host_token("box")) == 200
    asked.refresh_from_db()
    assert asked.answered_at is not None


@pytest.mark.parametrize("value", [1e22, 1e300, -1e300, 5e-324, float(2**63), 0.1, -0.0])
def test_a_metric_of_any_size_comes_back_as_it_was(value: float) -> None:
    attempt = an_attempt()
    ingest.accept(attempt, [train(1, reward=value), event(2, "note", text="x")])
    frame = frames.read(attempt.run_id, StreamCursor(0, 0), FrameExtras(), with_logs=False)
    assert frame is not None
    rows = [row for text in frame.texts for row in json.loads(text).get("rows", [])]
    # A database may write 1e22 with all of its digits, as a whole number.
    assert [float(row[4]["reward"]) for row in rows] == [value]
    assert float(Run.objects.get().last_metrics["reward"]) == value
    folding.fold(attempt.run_id, at_least=1)


@pytest.mark.parametrize(
    "path",
    [
        "/runs/?q=%00",
        "/runs/?owner=%00&status=%00&page=%00",
        "/runs/?page=99999999999999999999999",
        "/runs/a%00b/",
        "/runs/none/logs/%00",
        "/datasets/99999999999999999999999/",
        "/datasets/?q=%00",
        "/rewards/?q=%00",
        "/hardware/%00/",
        "/hardware/?host=%00",
        "/runs/new?dataset=99999999999999999999999&from=%00&profile=%00",
    ],
)
def test_a_page_asked_for_what_cannot_be(client: Client, path: str) -> None:
    client.force_login(User.objects.create_user("olga", role=Role.OPERATOR))
    assert client.get(path).status_code < 500


@pytest.mark.parametrize("kind", [FORM, MULTIPART_CONTENT])
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/runs/stop", {"mode": "now", "run": "a\0b"}),
        ("/hardware/queue/{run}/move", {"put": "before", "other": "a\0b"}),
        ("/hardware/queue/{run}/priority", {"priority": "1\0"}),
        ("/runs/new/check", {"name": "a\0b", "host": "\0", "model": "\0", "profile": "\0", "key": "\0"}),
        ("/rewards/new/", {"name": "a\0b"}),
    ],
)
def test_a_form_that_holds_what_cannot_be(client: Client, path: str, fields: dict[str, str], kind: str) -> None:
    client.force_login(User.objects.create_user("ana", role=Role.OPERATOR))
    path = path.format(run=an_attempt("queued").run_id)
    answer = client.post(path, urlencode(fields) if kind == FORM else fields, content_type=kind)
    assert answer.status_code < 500
    assert answer.status_code != 404


def test_a_name_with_a_nul_signs_nobody_in(client: Client) -> None:
    answer = client.post("/sign-in/", {"username": "a\0b", "password": "a long enough one\0"})
    assert answer.status_code < 500


def test_rows_of_a_dataset_with_odd_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"prompt": {ODD}, "answer": "2"}}\n' * 3)
    with path.open("rb") as file:
        version = actions.create_from_upload(None, "odd", file, "rows.jsonl")
    worker.process(version)
    version.refresh_from_db()
    assert version.status != DatasetVersion.CHECKING
    if actions.request_import(version, ColumnMapping(prompt="prompt", answer="answer")):
        worker.process(version)
        version.refresh_from_db()
        assert version.status != DatasetVersion.CHECKING
