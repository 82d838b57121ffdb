"""Compiled kernels: one folder for each set of versions and GPUs, none over the limit, an operator's own kept."""

from __future__ import annotations

import os
from pathlib import Path

from workers.settings import HostSettings
from workers.supervisor.servers import compilecache

DAY = 86_400


def host(tmp_path: Path, **changes: object) -> HostSettings:
    python = tmp_path / "venv" / "bin" / "python"
    values = {"runs_dir": tmp_path / "runs", "control_url": "http://c", "trainer_python": str(python), **changes}
    return HostSettings(**values)  # type: ignore[arg-type]


def install(tmp_path: Path, *packages: str) -> None:
    for package in packages:
        folder = tmp_path / "venv" / "lib" / "python3.11" / "site-packages" / f"{package}.dist-info"
        folder.mkdir(parents=True)


def test_other_versions_and_other_gpus_have_other_folders(tmp_path: Path) -> None:
    install(tmp_path, "torch-2.13.0", "vllm-0.31.0")
    settings = host(tmp_path)
    keys = [compilecache.key(settings, ["H100"]), compilecache.key(settings, ["H200"])]
    install(tmp_path, "triton-3.5.0")
    keys.append(compilecache.key(settings, ["H100"]))
    assert len(set(keys)) == 3
    found = compilecache.variables(settings, {}, ["H100", "H100"])
    folder = tmp_path / "compile-cache" / keys[2]
    assert found == {name: str(folder / part) for name, part in compilecache.FOLDERS.items()}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_an_operators_own_folder_stays_and_a_cpu_compiles_nothing(tmp_path: Path) -> None:
    settings = host(tmp_path)
    own = {"VLLM_CACHE_ROOT": "/big", "TRITON_CACHE_DIR": "/big"}
    assert list(compilecache.variables(settings, own, ["H100"])) == ["TORCHINDUCTOR_CACHE_DIR"]
    assert compilecache.variables(settings, {}, []) == {}
    assert compilecache.variables(host(tmp_path, compile_cache_mib=0), {}, ["H100"]) == {}


def test_what_was_not_used_for_longest_goes_first_and_nothing_of_today(tmp_path: Path) -> None:
    settings = host(tmp_path, compile_cache_mib=1)
    now = 100 * DAY
    for name, age in (("old", 9), ("older", 10), ("today", 0)):
        folder = tmp_path / "compile-cache" / name / "vllm"
        folder.mkdir(parents=True)
        (folder / "kernel").write_bytes(bytes(700_000))
        os.utime(folder.parent, (now - age * DAY, now - age * DAY))
    compilecache.tidy(settings, now)
    left = {folder.name for folder in (tmp_path / "compile-cache").iterdir()}
    assert left == {"today"}
    compilecache.tidy(settings, now)
    assert {folder.name for folder in (tmp_path / "compile-cache").iterdir()} == {"today"}


def test_a_folder_that_cannot_be_made_costs_the_run_nothing(tmp_path: Path) -> None:
    (tmp_path / "compile-cache").write_text("a file")
    assert compilecache.variables(host(tmp_path), {}, ["H100"]) == {}
    compilecache.tidy(host(tmp_path))
