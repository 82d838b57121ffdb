"""Datasets that runs have used are taken from the host's own disk: checked each time, bounded, shared."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from tests.datasets import parquet
from tests.workers.supervisor.attempts import RUN, attempt
from workers.contract.wire.names import FileName
from workers.host.launcher import Launch
from workers.settings import HostSettings
from workers.supervisor.inputs.datasetcache import DatasetCache

FIRST, SECOND, THIRD = (letter * 1000 for letter in (b"a", b"b", b"c"))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def fetched(folder: Path, content: bytes) -> Path:
    path = folder / f"{sha256(content)[:8]}.fetched"
    path.write_bytes(content)
    return path


def test_what_was_kept_is_given_again_as_another_name_of_the_same_file(tmp_path: Path) -> None:
    cache, mine = DatasetCache(tmp_path / "cache", 10_000), fetched(tmp_path, FIRST)
    assert not cache.copy_to(sha256(FIRST), tmp_path / "part")
    cache.keep(sha256(FIRST), mine)
    assert cache.copy_to(sha256(FIRST), tmp_path / "part")
    assert (tmp_path / "part").samefile(mine)


def test_a_damaged_file_is_thrown_away(tmp_path: Path) -> None:
    cache = DatasetCache(tmp_path / "cache", 10_000)
    cache.keep(sha256(FIRST), fetched(tmp_path, FIRST))
    (tmp_path / "cache" / f"{sha256(FIRST)}.parquet").write_bytes(SECOND)
    assert not cache.copy_to(sha256(FIRST), tmp_path / "part")
    assert list((tmp_path / "cache").glob("*.parquet")) == []
    assert not (tmp_path / "part").exists()


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = DatasetCache(tmp_path / "cache", 2_500)
    for age, content in ((30, FIRST), (20, SECOND)):
        cache.keep(sha256(content), fetched(tmp_path, content))
        there = tmp_path / "cache" / f"{sha256(content)}.parquet"
        os.utime(there, (there.stat().st_mtime - age,) * 2)
    assert cache.copy_to(sha256(FIRST), tmp_path / "used now")
    cache.keep(sha256(THIRD), fetched(tmp_path, THIRD))
    assert cache.copy_to(sha256(FIRST), tmp_path / "one")
    assert not cache.copy_to(sha256(SECOND), tmp_path / "two")
    assert cache.copy_to(sha256(THIRD), tmp_path / "three")


@pytest.mark.parametrize(("limit", "name"), [(0, sha256(FIRST)), (999, sha256(FIRST)), (10_000, "../../escape")])
def test_nothing_is_kept_that_is_too_large_or_has_no_checksum_for_a_name(limit: int, name: str, tmp_path: Path) -> None:
    cache = DatasetCache(tmp_path / "cache", limit)
    with cache.alone(name, 1.0):
        cache.keep(name, fetched(tmp_path, FIRST))
        assert not cache.copy_to(name, tmp_path / "part")
    assert list(tmp_path.glob("**/*.parquet")) == []


def test_without_hard_links_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refused)
    cache = DatasetCache(tmp_path / "cache", 10_000)
    cache.keep(sha256(FIRST), fetched(tmp_path, FIRST))
    assert cache.copy_to(sha256(FIRST), tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == FIRST
    assert (tmp_path / "part").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_can_not_be_used_is_no_cache_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = DatasetCache(tmp_path / "file" / "cache", 10_000)
    with cache.alone(sha256(FIRST), 1.0):
        cache.keep(sha256(FIRST), fetched(tmp_path, FIRST))
        assert not cache.copy_to(sha256(FIRST), tmp_path / "part")


def test_a_file_that_can_not_be_read_is_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, opened = DatasetCache(tmp_path / "cache", 10_000), Path.open
    cache.keep(sha256(FIRST), fetched(tmp_path, FIRST))

    def of_somebody_else(path: Path, *how: str) -> object:
        if path.parent == tmp_path / "cache":
            raise PermissionError(13, "Permission denied")
        return opened(path, *how)

    monkeypatch.setattr(Path, "open", of_somebody_else)
    assert not cache.copy_to(sha256(FIRST), tmp_path / "part")
    assert not (tmp_path / "part").exists()


def test_of_two_that_want_the_same_one_fetches_and_the_other_waits(tmp_path: Path) -> None:
    fetches: list[str] = []
    both = threading.Barrier(2)

    def want(name: str) -> None:
        cache = DatasetCache(tmp_path / "cache", 10_000)
        both.wait()
        with cache.alone(sha256(FIRST), 60.0):
            if not cache.copy_to(sha256(FIRST), tmp_path / name):
                fetches.append(name)
                (tmp_path / name).write_bytes(FIRST)
                cache.keep(sha256(FIRST), tmp_path / name)

    threads = [threading.Thread(target=want, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fetches) == 1
    assert (tmp_path / "one").samefile(tmp_path / "two")


def test_who_waited_long_enough_goes_on_alone(tmp_path: Path) -> None:
    cache = DatasetCache(tmp_path / "cache", 10_000)
    with cache.alone(sha256(FIRST), 1.0), DatasetCache(tmp_path / "cache", 10_000).alone(sha256(FIRST), 0.0):
        cache.keep(sha256(FIRST), fetched(tmp_path, FIRST))
    assert cache.copy_to(sha256(FIRST), tmp_path / "part")


def test_the_cache_lies_beside_the_runs_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    said = {"GRPO_RUNS_DIR": str(tmp_path / "runs"), "GRPO_CONTROL_URL": "http://127.0.0.1:1"}
    assert HostSettings.from_env(said).dataset_cache_folder == tmp_path / "dataset-cache"
    elsewhere = HostSettings.from_env({**said, "GRPO_DATASET_CACHE_DIR": "/big/disk", "GRPO_DATASET_CACHE_MIB": "5"})
    assert (elsewhere.dataset_cache_folder, elsewhere.dataset_cache_mib) == (Path("/big/disk"), 5)
    assert HostSettings.from_env(elsewhere.as_env()) == elsewhere


@pytest.mark.processes
def test_the_second_run_of_a_dataset_asks_the_control_plane_for_nothing(tmp_path: Path) -> None:
    with attempt(tmp_path / "runs") as first:
        first.launch()
        assert first.wait_for_end()["reason"] == "completed"
    with attempt(tmp_path / "runs", spec={"number": 2, "attempt_id": f"{RUN}-2"}) as second:
        second.control.refuse["dataset"] = 503
        assert second.launch() == Launch.STARTED
        assert second.wait_for_end()["reason"] == "completed"
        assert (second.folder / FileName.DATASET).read_bytes() == parquet()
