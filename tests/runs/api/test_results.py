from __future__ import annotations

import pytest

from controlplane.platform.accounts.models import ApiScope
from runs.engine.records import LogChunk
from runs.intake.host_api import ingest, uploads
from tests.runs.api.clients import Program
from tests.runs.builders import an_attempt, event, train

pytestmark = pytest.mark.django_db


def test_a_log_is_read_in_parts_that_cut_no_character():
    attempt = an_attempt()
    LogChunk.objects.create(attempt=attempt, name="trainer", offset=0, data="a€b".encode())
    program, text, at = Program(ApiScope.READ), "", 0
    for _ in range(3):
        part = program.get(f"runs/{attempt.run_id}/logs/trainer", offset=at, limit=3).json()
        text, at = text + part["text"], part["next_offset"]
    assert (text, at, part["size"]) == ("a€b", 5, 5)


def test_metrics_are_named_and_their_points_read():
    attempt = an_attempt()
    ingest.accept(attempt, [train(attempt.last_seq + 1, step=1, reward=0.5)])
    program = Program(ApiScope.READ)
    assert "reward" in [each["name"] for each in program.get(f"runs/{attempt.run_id}/metrics").json()["items"]]
    series = program.get(f"runs/{attempt.run_id}/series", metrics="reward").json()["series"]
    assert (series["reward"]["step"], series["reward"]["value"]) == ([1], [0.5])


def test_completions_come_with_their_scores_page_by_page():
    attempt = an_attempt()
    groups = [{"step": step, "row": 7, "completions": [{"text": "4", "reward": 1.0}]} for step in (1, 2)]
    uploads.samples(attempt, 1, groups)
    program = Program(ApiScope.READ)
    first = program.get(f"runs/{attempt.run_id}/completions", limit=1).json()
    second = program.get(f"runs/{attempt.run_id}/completions", limit=1, cursor=first["next_cursor"]).json()
    assert [page["items"][0]["step"] for page in (first, second)] == [2, 1]
    assert first["items"][0]["completions"][0]["reward"] == 1.0
    assert second["next_cursor"] == ""


def test_completions_of_one_source_are_read_alone():
    attempt = an_attempt()
    groups = [
        {"step": 1, "row": row, "sources": sources, "completions": [{"text": "4", "reward": 1.0}]}
        for row, sources in enumerate([["algebra", "long"], ["Algebra"], ["algebra two"], [], "algebra", [7]])
    ]
    uploads.samples(attempt, 1, groups)
    program, place = Program(ApiScope.READ), f"runs/{attempt.run_id}/completions"
    found = program.get(place, source="algebra").json()["items"]
    assert [(group["row"], group["sources"]) for group in found] == [(0, ["algebra", "long"])]
    assert [group["row"] for group in program.get(place, source="long", step=1).json()["items"]] == [0]
    assert program.get(place, source="%").json()["items"] == []
    assert len(program.get(place).json()["items"]) == 6


def test_events_checkpoints_receipts_and_health_are_read():
    attempt = an_attempt()
    saved = {"step": 1, "path": "checkpoints/checkpoint-1", "bytes": 10, "kept": [1]}
    ingest.accept(attempt, [event(attempt.last_seq + 1, "checkpoint", **saved)])
    program, place = Program(ApiScope.READ), f"runs/{attempt.run_id}"
    assert program.get(f"{place}/checkpoints").json()["items"][0]["step"] == 1
    assert program.get(f"{place}/events").json()["items"][0]["kind"] == "checkpoint"
    assert program.get(f"{place}/receipts").json()["items"][0]["attempt"] == 1
    assert program.get(f"{place}/health").json()["verdict"] == "unknown"


@pytest.mark.parametrize("cursor", ["x", "W10=", "WzFd", "bnVsbA=="])
def test_a_cursor_of_somebodys_own_is_refused(cursor):
    answer = Program(ApiScope.READ).get("runs", cursor=cursor)
    assert answer.status_code == 422
    assert answer.json()["error"]["where"] == "cursor"
