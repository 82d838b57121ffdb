"""The secret key is made once and whole, on any file system."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from controlplane.platform.datafolder import secret_key


def refused(*names: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def made(folder: Path, links: bool) -> str:
    if not links:
        os.link = refused
    return secret_key(folder)


@pytest.mark.processes
@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_processes_that_start_at_once_agree_on_one_key(tmp_path, links):
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        keys = set(pool.map(partial(made, links=links), [tmp_path] * 12))
    assert len(keys) == 1
    assert keys == {(tmp_path / "secret_key").read_text()}
    assert (tmp_path / "secret_key").stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob(".secret_key.[0-9]*"))


def test_without_hard_links_a_key_that_another_process_made_meanwhile_stays(tmp_path, monkeypatch):
    def refused_late(draft, path):
        path.write_text("theirs")
        refused()

    monkeypatch.setattr(os, "link", refused_late)
    assert secret_key(tmp_path) == "theirs"
