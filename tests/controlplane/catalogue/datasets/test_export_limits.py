"""Downloads of rows and reads for pages: how many there may be at once."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from controlplane.catalogue.datasets import exporting, reader_process
from controlplane.catalogue.datasets.errors import ChildFailed
from controlplane.platform.confined.limits import Slots

pytestmark = pytest.mark.processes


def endless(*_: object) -> Iterator[bytes]:
    while True:
        yield b"row"


def test_only_some_downloads_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_process, "_streamed", endless)
    streams = [reader_process.stream(Path(), "export", {}) for _ in range(reader_process.MAX_STREAMS)]
    assert [next(each) for each in streams] == [b"row"] * len(streams)
    for _ in range(2):
        with pytest.raises(ChildFailed, match="are already being downloaded"):
            next(reader_process.stream(Path(), "export", {}))
    streams[0].close()  # type: ignore[attr-defined]  # a generator
    last = reader_process.stream(Path(), "export", {})
    assert next(last) == b"row"
    for each in (*streams, last):
        each.close()  # type: ignore[attr-defined]  # a generator


def test_only_some_pages_read_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end, children = threading.Event(), list[str]()

    @contextmanager
    def started(folder: Path, verb: str) -> Iterator[SimpleNamespace]:
        children.append(verb)
        yield SimpleNamespace()

    class Conversation:
        def __init__(self, *_: object) -> None:
            self.ends_within = may_end.wait

        def __enter__(self) -> Conversation:
            return self

        def __exit__(self, *_: object) -> None: ...

        def output(self, step: str) -> bytes:
            return b"{}"

    monkeypatch.setattr(reader_process, "_started", started)
    monkeypatch.setattr(reader_process, "_ChildExchange", Conversation)
    monkeypatch.setattr(reader_process, "_QUESTIONS", Slots(count=2, waiting=0))
    with ThreadPoolExecutor(2) as pages:
        answers = [pages.submit(reader_process.ask, Path(), "find", {}) for _ in range(2)]
        while len(children) < 2:
            threading.Event().wait(0.001)
        with pytest.raises(ChildFailed, match="server is busy"):
            reader_process.ask(Path(), "find", {})
        may_end.set()
        assert [answer.result() for answer in answers] == [{}] * 2
    assert reader_process.ask(Path(), "find", {}) == {}


async def test_a_download_that_is_given_up_ends_its_reader() -> None:
    ended = threading.Event()

    def pieces() -> Generator[bytes]:
        try:
            yield from endless()
        finally:
            ended.set()

    download = exporting._threaded(pieces())
    assert await anext(download) == b"row"
    assert not ended.is_set()
    await download.aclose()  # type: ignore[attr-defined]  # a generator
    assert ended.is_set()
