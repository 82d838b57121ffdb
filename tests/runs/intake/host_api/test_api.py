from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient, Client
from pytest_django import Settings

from controlplane.catalogue.datasets.models import Corpus, CorpusVersion
from controlplane.platform.http.tokens import attempt_token
from controlplane.setup.serving.processes import BASE_DIR as ROOT
from runs.engine import queries, sentences
from runs.engine.models import Attempt
from runs.engine.records import LogChunk, MetricRow, SampleRow
from runs.engine.spec import runs_searching
from runs.engine.states import RunStatus
from runs.intake.host_api import views
from tests.runs.builders import FREE, a_host, an_attempt
from workers.contract.wire.documents import to_dict

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


@pytest.fixture
def attempt() -> Attempt:
    return an_attempt(RunStatus.RUNNING)


def post(attempt: Attempt, what: str, body: Any = None, *, raw: bytes | None = None, **headers: str) -> Any:
    data = json.dumps(body).encode() if raw is None else raw
    headers = {"Authorization": f"Bearer {attempt_token(attempt.pk)}", **headers}
    url = f"/api/attempts/{attempt.pk}/{what}"
    return Client(enforce_csrf_checks=True).post(url, data, content_type="application/json", headers=headers)


def line(seq: int, **data: Any) -> dict[str, Any]:
    return {"seq": seq, "t": 1.5, "kind": "train", "step": seq, "data": data or {"reward": 1.0}}


ROUTES = [
    ("POST", "claim"),
    ("GET", "dataset"),
    ("GET", "corpora/abc"),
    ("POST", "sync"),
    ("POST", "samples"),
    ("POST", "logs/trainer"),
    ("POST", "reaped"),
    ("POST", "not_launched"),
]


@pytest.mark.parametrize(("method", "what"), ROUTES)
def test_each_route_refuses_no_token_a_wrong_one_and_another_method(
    method: str, what: str, attempt: Attempt, client: Client
) -> None:
    url = f"/api/attempts/{attempt.pk}/{what}"
    tokens = {"": 401, "Bearer nonsense": 403, f"Bearer {attempt_token('other-1')}": 403, "Bearer \xe9": 403}
    for token, status in tokens.items():
        answer = client.generic(method, url, headers={"Authorization": token} if token else {})
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"what", "where", "fix"}
    other = "POST" if method == "GET" else "GET"
    answer = client.generic(other, url, headers={"Authorization": f"Bearer {attempt_token(attempt.pk)}"})
    assert (answer.status_code, answer.headers["Allow"]) == (405, method)


@pytest.mark.parametrize(("method", "what"), ROUTES)
def test_each_route_says_when_there_is_no_such_attempt(method: str, what: str, client: Client) -> None:
    headers = {"Authorization": f"Bearer {attempt_token('gone-1')}"}
    assert client.generic(method, f"/api/attempts/gone-1/{what}", headers=headers).status_code == 404


def test_tokens_differ_by_attempt_and_key(settings: Settings) -> None:
    first = attempt_token("a-1")
    assert attempt_token("a-2") != first
    settings.SECRET_KEY = "another"
    assert attempt_token("a-1") != first


def test_a_claim_is_answered(attempt: Attempt) -> None:
    a_host()
    body = {"schema": 1, "host": "box", "pid": 7, "boot_id": "b"}
    answer = post(attempt, "claim", body).json()
    refusal = {"go": False, "why": "The attempt is running.", "spec_sha256": ""}
    assert answer == {**refusal, "ack": 0, "stop": None, "secrets": {}}


def test_a_sync_stores_lines_and_tells_the_ack_and_the_intent(attempt: Attempt) -> None:
    Attempt.objects.update(stop_mode="save")
    answer = post(attempt, "sync", {"lines": [line(1), line(2)]})
    assert answer.json() == {"ack": 2, "stop": "save", "watched": False}
    assert post(attempt, "sync", {"lines": []}).json()["ack"] == 2


def test_a_gzipped_sync_is_read(attempt: Attempt) -> None:
    raw = gzip.compress(json.dumps({"lines": [line(1)]}).encode())
    assert post(attempt, "sync", raw=raw, **{"Content-Encoding": "gzip"}).json()["ack"] == 1


def test_an_attempt_that_was_given_up_is_told_to_stop() -> None:
    assert post(an_attempt(RunStatus.FAILED), "sync", {"lines": []}).json()["stop"] == "now"


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        ([line(1), {**line(2), "seq": "2"}], "$.lines[1].seq"),
        ([line(1), {**line(2), "kind": "gossip"}], "lines[1]"),
        ([line(1), {**line(2), "seq": -2}], "lines[1]"),
        ([line(1), {**line(2), "t": "noon"}], "$.lines[1].t"),
        ([line(1), line(2, kl=float("nan"), reward=1.0)], "lines[1]"),
    ],
)
def test_a_malformed_line_is_named_and_nothing_stored(lines: list[Any], where: str, attempt: Attempt) -> None:
    answer = post(attempt, "sync", {"lines": lines})
    assert (answer.status_code, answer.json()["error"]["where"]) == (400, where)
    assert not MetricRow.objects.exists()


def test_lines_before_the_dispatch_are_a_conflict() -> None:
    assert post(an_attempt(RunStatus.QUEUED), "sync", {"lines": [line(1)]}).status_code == 409


@pytest.mark.parametrize(
    ("raw", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[" * 100_000, {}, 400),
        (b"not gzip", {"Content-Encoding": "gzip"}, 400),
        (gzip.compress(b'{"lines":[]}')[:-9], {"Content-Encoding": "gzip"}, 400),
        (gzip.compress(b" " * (views.SYNC_LIMIT + 1)), {"Content-Encoding": "gzip"}, 413),
        (b" " * (views.SYNC_LIMIT + 1), {}, 413),
        (b'{"lines":[]}', {"Content-Encoding": "br"}, 415),
    ],
    ids=["cut", "deep", "no gzip", "cut gzip", "gzip bomb", "large", "brotli"],
)
def test_a_body_that_can_not_be_used_is_a_clear_error(
    raw: bytes, headers: dict[str, str], status: int, attempt: Attempt
) -> None:
    answer = post(attempt, "sync", raw=raw, **headers)
    assert answer.status_code == status
    assert answer.json()["error"]["what"]


# --- completions and logs ------------------------------------------------------------------------------------


def group(step: int, text: str = "4") -> dict[str, Any]:
    return {"step": step, "prompt": "2+2", "completions": [{"text": text}]}


def test_completions_land_once_each(attempt: Attempt) -> None:
    assert post(attempt, "samples", {"first_line": 1, "lines": [group(1), group(1)]}).json() == {"ack": 2}
    assert post(attempt, "samples", {"first_line": 2, "lines": [group(1), group(2)]}).json() == {"ack": 3}
    assert post(attempt, "samples", {"first_line": 9, "lines": [group(9)]}).json() == {"ack": 3}
    assert list(SampleRow.objects.values_list("line", "step")) == [(1, 1), (2, 1), (3, 2)]
    assert queries.latest_sample_step(attempt.run) == 2


def test_a_nul_in_a_completion_is_replaced(attempt: Attempt) -> None:
    post(attempt, "samples", {"first_line": 1, "lines": [group(1, "a\x00b\\u0000")]})
    assert SampleRow.objects.get().data["completions"][0]["text"] == "a\ufffdb\\u0000"


def test_a_group_without_a_step_is_named(attempt: Attempt) -> None:
    answer = post(attempt, "samples", {"first_line": 1, "lines": [group(1), {"prompt": "?"}]})
    assert (answer.status_code, answer.json()["error"]["where"]) == (400, "lines[1]")


def send_log(attempt: Attempt, offset: int, data: bytes) -> int:
    size: int = post(attempt, f"logs/trainer?offset={offset}", raw=data).json()["size"]
    return size


def test_log_bytes_land_once_each(attempt: Attempt) -> None:
    assert send_log(attempt, 0, b"hello ") == 6
    assert send_log(attempt, 0, b"hello world") == 11
    assert send_log(attempt, 50, b"far away") == 11
    assert send_log(attempt, 3, b"lo") == 11
    assert queries.log(attempt, "trainer").data == b"hello world"
    assert queries.log_sizes(attempt) == {"trainer": 11}


def test_a_log_is_read_from_any_offset_and_from_its_end(attempt: Attempt) -> None:
    whole = bytes(range(256)) * 1000
    for start in range(0, len(whole), 50_000):
        send_log(attempt, start, whole[start : start + 50_000])
    assert LogChunk.objects.count() <= 6
    part = queries.log(attempt, "trainer", offset=60_000, limit=80_000)
    assert (part.data, part.offset, part.size) == (whole[60_000:140_000], 60_000, len(whole))
    assert queries.log(attempt, "trainer", offset=-10).data == whole[-10:]
    assert queries.log(attempt, "trainer", offset=10**9).data == b""


@pytest.mark.parametrize("what", ["logs/passwd?offset=0", "logs/trainer", "logs/trainer?offset=-1"])
def test_a_log_of_another_name_or_without_an_offset_is_refused(what: str, attempt: Attempt) -> None:
    assert post(attempt, what, raw=b"x").status_code in (400, 404)


# --- reaped and the dataset ----------------------------------------------------------------------------------


def test_a_reap_report_ends_the_attempt(attempt: Attempt) -> None:
    Attempt.objects.update(claimed_at="2026-01-01T00:00Z")
    body = {"lock_held": False, "receipt": FREE, "lines": [line(1)], "detail": "2 processes killed"}
    assert post(attempt, "reaped", body).json() == {"ok": True}
    attempt.refresh_from_db()
    assert (attempt.reason, attempt.last_seq) == ("supervisor_lost", 1)


def test_a_reap_report_with_half_a_receipt_is_refused(attempt: Attempt) -> None:
    assert post(attempt, "reaped", {"lock_held": False, "receipt": {"free": True}}).status_code == 400


@pytest.mark.parametrize(
    ("launches", "final", "status"), [(1, False, "starting"), (3, False, "failed"), (1, True, "failed")]
)
def test_a_launcher_that_fails_tells_the_run_why(launches: int, final: bool, status: str) -> None:
    attempt = an_attempt(RunStatus.STARTING)
    Attempt.objects.update(launches_sent=launches)
    assert post(attempt, "not_launched", {"detail": "No space left.", "final": final}).json() == {"ok": True}
    attempt.refresh_from_db()
    assert (attempt.status, attempt.detail) == (status, "No space left." if status == "failed" else "")
    assert "No space left." in sentences.of_event(attempt.events.get(kind="not_launched"))


def test_a_launcher_that_fails_beside_a_live_supervisor_changes_nothing(attempt: Attempt) -> None:
    post(attempt, "not_launched", {"detail": "No space left.", "final": True})
    attempt.refresh_from_db()
    assert (attempt.status, attempt.events.filter(kind="not_launched").count()) == ("running", 0)


@pytest.mark.parametrize("asgi", [False, True])
def test_the_dataset_is_streamed(asgi: bool, attempt: Attempt, settings: Settings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    path = attempt.run.dataset_version.rows_path
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"row": 0}\n' * 100_000)
    url, headers = f"/api/attempts/{attempt.pk}/dataset", {"Authorization": f"Bearer {attempt_token(attempt.pk)}"}

    async def under_asgi() -> bytes:
        answer: Any = await AsyncClient().get(url, headers=headers)
        return b"".join([block async for block in answer.streaming_content])

    if asgi:
        assert async_to_sync(under_asgi)() == path.read_bytes()
    else:
        assert Client().get(url, headers=headers).getvalue() == path.read_bytes()


def test_a_dataset_file_that_is_gone_is_said(attempt: Attempt, client: Client) -> None:
    attempt.run.dataset_version.rows_path.unlink(missing_ok=True)  # another test's version may have had this number
    headers = {"Authorization": f"Bearer {attempt_token(attempt.pk)}"}
    assert client.get(f"/api/attempts/{attempt.pk}/dataset", headers=headers).status_code == 404


def test_a_corpus_is_sent_to_runs_that_search_it_alone(attempt: Attempt, settings: Settings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    version = CorpusVersion.objects.create(
        corpus=Corpus.objects.create(name="Towns"), number=1, status=CorpusVersion.READY, sha256="a" * 64
    )
    version.folder.mkdir(parents=True)
    version.path.write_bytes(b"documents")
    url, headers = (
        f"/api/attempts/{attempt.pk}/corpora/{'a' * 64}",
        {"Authorization": f"Bearer {attempt_token(attempt.pk)}"},
    )
    assert Client().get(url, headers=headers).status_code == 404
    attempt.run.spec["episodes"] = {"corpora": [to_dict(version.spec)]}
    attempt.run.save(update_fields=["spec"])
    assert Client().get(url, headers=headers).getvalue() == b"documents"
    assert runs_searching(version) == [f"the run {attempt.run.name}"]
    version.path.unlink()
    assert Client().get(url, headers=headers).status_code == 404


@pytest.mark.processes
def test_a_whole_life_never_opens_the_runs_folder(tmp_path: Path) -> None:
    """In a process of its own, because an audit hook can't be taken out again."""
    runs_dir = tmp_path / "runs"
    runs_dir.mkdir(mode=0)  # root reads it all the same: for root the audit hook is the proof
    code = "\n".join(
        [
            "import sys",
            f"forbidden = {str(runs_dir)!r}",
            "seen = []",
            "def hook(event, args):",
            "    if event in ('open', 'os.listdir', 'os.scandir', 'os.mkdir') and str(args[0]).startswith(forbidden):",
            "        seen.append((event, args[0]))",
            "sys.addaudithook(hook)",
            "import django; django.setup()",
            "from django.core.management import call_command",
            "call_command('migrate', verbosity=0)",
            "from django.test import Client",
            "from tests.runs.builders import an_attempt, a_user, ended, event, train",
            "from runs.intake.host_api import ingest, uploads; from runs.engine.scheduling import launching, stopping",
            "from workers.contract.wire.names import StopMode",
            "attempt = an_attempt('running')",
            "saved = event(2, 'checkpoint', step=1, path='checkpoints/checkpoint-1')",
            "ingest.accept(attempt, [train(1), saved])",
            "group = {'step': 1, 'prompt': '2+2', 'completions': [{'text': '4'}]}",
            "assert uploads.samples(attempt, 1, [group]) == 1",
            "assert uploads.log(attempt, 'trainer', 0, b'hello') == 5",
            "assert stopping.request_stop(attempt, StopMode.SAVE, a_user())",
            "ingest.accept(attempt, [ended(3, 'stopped_by_user')])",
            "again = launching.resume(attempt.run, a_user())",
            "assert again.resume_from == f'{attempt.run_id}/1/checkpoints/checkpoint-1'",
            "client = Client(); client.force_login(a_user())",
            "for page in ('', 'series.json?metrics=reward', 'logs/', 'completions/', 'events/', 'checkpoints/'):",
            "    answer = client.get(f'/runs/{attempt.run_id}/{page}', headers={'host': 'localhost'})",
            "    assert answer.status_code == 200, (page, answer.status_code)",
            "assert not seen, seen",
        ]
    )
    environment = {
        **os.environ,
        "CONTROLPLANE_DATA": str(tmp_path / "data"),
        "GRPO_RUNS_DIR": str(runs_dir),
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
    }
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_contracts_own_lines_are_what_the_api_reads(attempt: Attempt) -> None:
    from tests.runs.builders import ended, train

    answer = post(attempt, "sync", {"lines": [to_dict(train(1)), to_dict(ended(2))]})
    assert answer.json()["ack"] == 2


@pytest.mark.parametrize(("body", "alive"), [({}, True), ({"seen": True}, True), ({"seen": False}, False)])
def test_lines_that_a_reaper_hands_over_are_no_sign_of_life(
    attempt: Attempt, body: dict[str, bool], alive: bool
) -> None:
    for lines in ([], [line(1)]):
        Attempt.objects.update(last_seen_at=None)
        assert post(attempt, "sync", {"lines": lines, **body}).status_code == 200
        attempt.refresh_from_db()
        assert (attempt.last_seen_at is not None) == alive
    assert attempt.last_seq == 1


def test_only_a_supervisor_that_follows_it_is_told_when_to_come_again(attempt: Attempt, settings: Settings) -> None:
    """One of an earlier version refuses an answer with more in it."""
    settings.UNWATCHED_S = 2.5
    assert set(post(attempt, "sync", {"lines": []}).json()) == {"ack", "stop", "watched"}
    assert post(attempt, "sync", {"lines": [], "paced": True}).json()["again_s"] == 2.5
