"""Search in a log's stored bytes: every line once, over the borders of chunks, in stretches that are bounded."""

from __future__ import annotations

import tracemalloc

import pytest

from runs.engine.models import Attempt
from runs.engine.records import LogChunk
from runs.pages.run_page import log_search
from tests.controlplane.people import viewer
from tests.runs.builders import an_attempt

pytestmark = pytest.mark.django_db


@pytest.fixture
def attempt() -> Attempt:
    return an_attempt()


def store(attempt: Attempt, data: bytes, size: int = 64 * 1024, name: str = "trainer") -> None:
    LogChunk.objects.bulk_create(
        LogChunk(attempt=attempt, name=name, offset=at, data=data[at : at + size]) for at in range(0, len(data), size)
    )


def search(attempt: Attempt, text: str, start: int = 0) -> log_search.LogHits:
    return log_search.search(attempt, "trainer", log_search.of_text(text), start, seconds=30)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_a_line_is_found_whole_wherever_the_chunks_were_cut(attempt: Attempt, size: int) -> None:
    store(attempt, b"first\nsecond needle here\nthird\nneedle", size)
    found = search(attempt, "NEEDLE")
    assert found.hits == [{"at": 6, "text": "second needle here"}, {"at": 31, "text": "needle"}]
    assert found.done


def test_a_line_with_two_hits_is_one_match(attempt: Attempt) -> None:
    store(attempt, b"a a a\nb\na\n")
    assert [hit["at"] for hit in search(attempt, "a").hits] == [0, 8]


def test_a_progress_bar_is_searched_by_what_it_wrote_over(attempt: Attempt) -> None:
    store(attempt, b"\r 10%|#\r 20%|##\r 30%|###\ndone\n")
    assert [hit["text"] for hit in search(attempt, "20%").hits] == ["20%|##"]


def test_what_is_written_later_is_found_from_where_the_search_ended(attempt: Attempt) -> None:
    store(attempt, b"one\ntwo")
    first = search(attempt, "needle")
    assert (first.next, first.done) == (4, True)
    LogChunk.objects.create(attempt=attempt, name="trainer", offset=7, data=b" needle\n")
    assert search(attempt, "needle", first.next).hits == [{"at": 4, "text": "two needle"}]


def test_a_search_says_that_lines_were_left_out_of_what_it_went_through(attempt: Attempt) -> None:
    store(attempt, b"one\n[5000 bytes left out here; the host has the whole file]\ntwo\n", 7)
    assert search(attempt, "no such words").left_out
    assert not search(attempt, "no such words", start=60).left_out


def test_more_hits_than_an_answer_holds_come_with_the_next_one(attempt: Attempt) -> None:
    store(attempt, b"".join(b"line %d\n" % i for i in range(1000)))
    seen: list[int] = []
    start, done = 0, False
    while not done:
        found = search(attempt, "line", start)
        assert len(found.hits) <= log_search.MAX_HITS
        seen += [hit["at"] for hit in found.hits]
        start, done = found.next, found.done
    assert len(seen) == len(set(seen)) == 1000


def test_a_search_that_takes_too_long_says_where_to_go_on(attempt: Attempt) -> None:
    store(attempt, b"x\n" * 200_000 + b"needle\n")
    found = log_search.search(attempt, "trainer", log_search.of_text("needle"), 0, seconds=0)
    assert (found.hits, found.done) == ([], False)
    assert 0 < found.next < 400_000


def test_a_line_without_an_end_is_searched_in_bounded_memory(attempt: Attempt) -> None:
    store(attempt, b"x" * 3_000_000 + b"needle" + b"y" * 3_000_000)
    tracemalloc.start()
    found = search(attempt, "needle")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.hits) == 1
    assert "needle" in found.hits[0]["text"]
    assert len(found.hits[0]["text"]) < 300
    assert peak < 12_000_000


def test_text_of_any_alphabet_is_found_and_broken_bytes_break_nothing(attempt: Attempt) -> None:
    store(attempt, "größe 你好\n".encode() + b"\xff\xfe needle \xc3\n", size=5)
    assert search(attempt, "你好").hits[0]["text"] == "größe 你好"
    assert "needle" in search(attempt, "needle").hits[0]["text"]


@pytest.mark.parametrize(
    "line",
    [
        "Traceback (most recent call last):",
        "RuntimeError: CUDA error: an illegal memory access",
        "torch.OutOfMemoryError: CUDA out of memory.",
        "ERROR 11-21 07:00:00 engine.py:12] died",
        "Killed",
        "Segmentation fault (core dumped)",
        "OSError: [Errno 28] No space left on device",
    ],
)
def test_lines_that_tell_of_an_error(attempt: Attempt, line: str) -> None:
    store(attempt, b"INFO fine\n" + line.encode() + b"\nINFO on\n")
    found = log_search.search(attempt, "trainer", log_search.of_errors, seconds=30)
    assert [hit["text"] for hit in found.hits] == [line]


@pytest.mark.parametrize("line", ["loss_error=0", "ignore_errors=True", "0 failed", "INFO terror 3", "Errors: none"])
def test_lines_that_only_look_like_it(attempt: Attempt, line: str) -> None:
    store(attempt, line.encode())
    assert log_search.search(attempt, "trainer", log_search.of_errors, seconds=30).hits == []


def test_each_sign_of_an_error_is_of_the_pattern() -> None:
    assert all(
        sign.decode() in log_search.ERROR.replace("[Oo]", "O").replace("Out", "out") for sign in log_search.SIGNS
    )


def test_the_page_asks_by_address_and_only_for_known_logs(attempt: Attempt) -> None:
    store(attempt, b"a <needle>\n", name="supervisor")
    client, base = viewer(), f"/runs/{attempt.run_id}/logs"
    found = client.get(f"{base}/supervisor/search", {"q": "<needle>"}).json()
    assert found == {"hits": [{"at": 0, "text": "a <needle>"}], "next": 11, "size": 11, "done": True, "left_out": False}
    assert client.get(f"{base}/supervisor/search").json()["hits"] == []
    assert client.get(f"{base}/passwd/search", {"q": "x"}).status_code == 404


def test_the_logs_tab_names_every_log_that_has_come_and_those_that_will(attempt: Attempt) -> None:
    store(attempt, b"x", name="vllm-2")
    shown = viewer().get(f"/runs/{attempt.run_id}/logs/").content.decode()
    assert [name for name in ("trainer", "vllm-2", "supervisor", "download") if f'data-log="{name}"' in shown] == [
        "trainer",
        "vllm-2",
        "supervisor",
    ]
