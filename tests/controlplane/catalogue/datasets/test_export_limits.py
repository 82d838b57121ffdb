"""Downloads of rows: how many are written at once, and for how long a browser may take nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from controlplane.catalogue.datasets import exporting, reader_process
from controlplane.catalogue.datasets.errors import ChildFailed

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


async def test_a_browser_that_takes_nothing_loses_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "IDLE_S", 0.01)
    ended = asyncio.Event()

    def pieces() -> Generator[bytes]:
        try:
            yield from endless()
        finally:
            ended.set()

    download = exporting._threaded(pieces())
    assert await anext(download) == b"row"
    await ended.wait()
    with pytest.raises(TimeoutError, match="read nothing"):
        await anext(download)
