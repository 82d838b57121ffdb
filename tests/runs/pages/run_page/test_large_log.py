"""A log of many thousand chunks costs a page, and the web's memory, what a small one does."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from django.db import connection

from runs.engine import queries
from runs.engine.models import Attempt
from runs.engine.records import LogChunk
from runs.pages.run_page import log_search
from tests.controlplane.people import viewer
from tests.runs.builders import an_attempt

pytestmark = pytest.mark.django_db

CHUNK = 64 * 1024
CHUNKS = 1024
"""64 MiB."""
LINE = b"INFO 11-21 07:00:00 engine.py:412] all is well, and nothing more is to be said of it\n"
FULL = (LINE * (CHUNK // len(LINE) + 1))[: CHUNK - 1] + b"\n"
ERROR = b"RuntimeError: here it broke\n"
A_FEW_MB = 8 * 2**20


@pytest.fixture
def attempt() -> Attempt:
    return an_attempt()


def store(attempt: Attempt, chunks: int, name: str = "trainer") -> int:
    LogChunk.objects.bulk_create(
        (
            LogChunk(attempt=attempt, name=name, offset=i * CHUNK, data=FULL if i != chunks - 2 else broken())
            for i in range(chunks)
        ),
        batch_size=50,
    )
    return chunks * CHUNK


def broken() -> bytes:
    return ERROR + FULL[len(ERROR) :]


def peak_of(work: Callable[[], object]) -> int:
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def steps_of(work: Callable[[], object]) -> int:
    """Hundreds of instructions of SQLite's machine: what a query costs, whatever else this computer does."""
    count = 0

    def counted() -> int:
        nonlocal count
        count += 1
        return 0

    connection.connection.set_progress_handler(counted, 100)
    try:
        work()
    finally:
        connection.connection.set_progress_handler(None, 0)
    return count


@pytest.mark.skipif(connection.vendor != "sqlite", reason="counts SQLite's instructions")
def test_what_a_watching_page_asks_with_every_frame_is_not_dearer_for_a_large_log(attempt: Attempt) -> None:
    store(attempt, 2, "supervisor")
    few = steps_of(lambda: queries.log_sizes(attempt))
    size = store(attempt, CHUNKS)
    assert steps_of(lambda: queries.log_sizes(attempt)) <= few + 5
    assert queries.log_sizes(attempt) == {"supervisor": 2 * CHUNK, "trainer": size}


def test_the_tail_the_middle_and_the_search_of_a_large_log_stay_small_in_memory(attempt: Attempt) -> None:
    size = store(attempt, CHUNKS)
    client, base = viewer(), f"/runs/{attempt.run_id}/logs/trainer"
    client.get("/runs/")  # what the first request of a process loads is not counted

    def read() -> None:
        for offset in (-CHUNK, 0, size // 2):
            answer = client.get(base, {"offset": offset, "limit": CHUNK})
            assert (len(answer.content), answer["X-Size"]) == (CHUNK, str(size))

    assert peak_of(read) < A_FEW_MB
    found: list[log_search.LogHits] = []
    search = lambda: found.append(log_search.search(attempt, "trainer", log_search.of_errors, seconds=120))  # noqa: E731
    assert peak_of(search) < A_FEW_MB
    assert (found[0].hits, found[0].done) == ([{"at": size - 2 * CHUNK, "text": ERROR.decode().strip()}], True)


def test_a_large_log_is_downloaded_whole_with_two_queries_a_block(
    attempt: Attempt, django_assert_max_num_queries: Callable[..., object]
) -> None:
    size = store(attempt, CHUNKS)
    length = 0

    def download() -> None:
        nonlocal length
        for block in queries.log_blocks(attempt, "trainer", size - 10):
            length += len(block)

    with django_assert_max_num_queries(2 * size // 2**20):
        assert peak_of(download) < A_FEW_MB
    assert length == size - 10


def test_a_download_ends_where_the_log_did_when_it_was_asked_for(attempt: Attempt) -> None:
    LogChunk.objects.create(attempt=attempt, name="trainer", offset=0, data=b"one\ntwo\nthree\n")
    assert b"".join(queries.log_blocks(attempt, "trainer", 8, block=4)) == b"one\ntwo\n"
