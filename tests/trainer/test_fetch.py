"""Downloads by the real huggingface_hub from a fake hub: what arrives, how far it says it is, why it fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.fakes.fake_hub import FakeHub
from tests.trainer import builders
from tests.waiting import wait_until
from workers.contract.wire import hub_files

pytestmark = pytest.mark.processes

WEIGHTS = os.urandom(2_000_000)
FILES = {
    "config.json": b"{}",
    "tokenizer.json": b'{"version": "1.0"}',
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"a pickle",
    "original/model.safetensors": b"the same again",
    "README.md": b"words",
}
Fetch = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        yield hub


@pytest.fixture
def begin(trainer_python: Path, hub: FakeHub, tmp_path: Path) -> Iterator[Fetch]:
    """begin("Org/Name", "--stall-s", "2", HF_TOKEN="right"): the download as a process."""
    started: list[subprocess.Popen[str]] = []

    def run(model: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        command = [trainer_python, "-m", "workers.trainer.fetch", model, "--progress", tmp_path / "progress.jsonl"]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        env = {**inherited, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), **environment}
        process = subprocess.Popen(
            [*map(str, command), *arguments],
            env=env,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def fetch(begin: Fetch) -> Callable[..., tuple[int, str]]:
    """The exit status and the last line."""

    def run(*arguments: str, **environment: str) -> tuple[int, str]:
        process = begin(*arguments, **environment)
        out, err = process.communicate(timeout=60)
        return process.returncode, (err or out).splitlines()[-1]

    return run


@pytest.fixture
def lines(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    def read() -> list[dict[str, Any]]:
        return builders.lines(tmp_path / "progress.jsonl")

    return read


def snapshot(home: Path, name: str = "Org--Model") -> Path:
    return next((home / "home" / "hub" / f"models--{name}" / "snapshots").iterdir())


def test_a_public_model_arrives_without_its_pickles(hub, fetch, lines, tmp_path) -> None:
    hub.add("Org/Model", FILES)
    status, said = fetch("Org/Model")
    assert (status, "complete" in said) == (0, True)
    folder = snapshot(tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    total = sum(len(FILES[name]) for name in ("config.json", "tokenizer.json", "model.safetensors"))
    assert {name: lines()[-1][name] for name in ("done_bytes", "total_bytes", "files_done", "files")} == {
        "done_bytes": total,
        "total_bytes": total,
        "files_done": 3,
        "files": 3,
    }


def test_several_models_come_one_after_the_other_and_are_counted_together(hub, fetch, lines, tmp_path) -> None:
    hub.add("Org/Model", FILES)
    hub.add("Org/Judge", {**FILES, "model.safetensors": b"small"})
    status, said = fetch("Org/Model", "--also", "Org/Judge@main", "--also", "Org/Model")
    assert (status, "Org/Model" in said) == (0, True)
    assert (snapshot(tmp_path, "Org--Judge") / "model.safetensors").read_bytes() == b"small"
    done = [line["done_bytes"] for line in lines()]
    assert done == sorted(done)
    sizes = [len(FILES[name]) for name in ("config.json", "tokenizer.json", "model.safetensors")]
    assert done[-1] == lines()[-1]["total_bytes"] == 2 * sum(sizes) + sum(sizes[:2]) + len(b"small")
    assert lines()[-1]["files_done"] == 9


def test_one_of_several_models_that_is_not_there_is_named(hub, fetch) -> None:
    hub.add("Org/Model", FILES)
    status, said = fetch("Org/Model", "--also", "Org/Judge")
    assert (status, "Org/Judge" in said) == (6, True)


def test_a_model_that_is_there_needs_no_hub(hub, fetch, lines) -> None:
    hub.add("Org/Model", FILES)
    fetch("Org/Model")
    asked = len(hub.requests)
    status, said = fetch("Org/Model", HF_ENDPOINT="http://127.0.0.1:9")
    assert (status, "in the cache" in said) == (0, True)
    assert fetch("Org/Model")[0] == 0
    assert len(hub.requests) == asked
    assert lines()[-1]["done_bytes"] == lines()[-1]["total_bytes"] > len(WEIGHTS)


def test_a_copy_that_lacks_a_file_is_completed(hub, fetch, tmp_path) -> None:
    hub.add("Org/Model", FILES)
    fetch("Org/Model")
    weights = snapshot(tmp_path) / "model.safetensors"
    weights.resolve().unlink()
    weights.unlink()
    assert fetch("Org/Model")[0] == 0
    assert weights.read_bytes() == WEIGHTS


def test_progress_grows_while_bytes_arrive(hub, begin, lines) -> None:
    hub.add("Org/Model", FILES, bytes_per_s=700_000)
    process = begin("Org/Model")
    assert process.wait(60) == 0
    done = [line["done_bytes"] for line in lines()]
    assert done == sorted(done)
    assert any(0 < number < len(WEIGHTS) for number in done)
    assert {line["total_bytes"] for line in lines()} == {len(WEIGHTS) + 20}


def test_a_gated_model_asks_for_its_terms_and_a_token(hub, fetch) -> None:
    hub.add("Org/Model", FILES, token="right")
    status, said = fetch("Org/Model")
    assert status == 6
    assert f"Accept its terms at {hub.url}/Org/Model, and give the host a token" in said
    status, said = fetch("Org/Model", HF_TOKEN="wrong")
    assert status == 6
    assert "the account of this host's token may not download it" in said
    assert fetch("Org/Model", HF_TOKEN="right")[0] == 0


def test_the_token_stays_with_the_hub(hub, fetch) -> None:
    hub.add("Org/Model", FILES, token="right")
    fetch("Org/Model", HF_TOKEN="right")
    from_storage = [token for _, path, token in hub.requests if path.startswith("/blobs/")]
    assert from_storage == [None]


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (("Org/Nothing",), {}, "There is no model Org/Nothing on http"),
        (("Org/Model", "--revision", "v9"), {}, "Org/Model has no revision v9 on http"),
        (("a/b/c",), {}, "'a/b/c' is not a valid name for a model on the hub"),
        (("Org/Pickles",), {}, "Org/Pickles can't be used. The weights are pickles (.bin), which can contain code"),
        (("Org/Huge",), {}, "Org/Huge needs 1,000,000 GB more in"),
        (("Org/Model",), {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE prevents a download from"),
        (("Org/Model",), {"HF_ENDPOINT": "http://127.0.0.1:9"}, "http://127.0.0.1:9 can't be reached from this host"),
        (("Org/Model",), {"HF_HOME": "/dev/null/none"}, "could not be written to /dev/null/none/hub"),
    ],
)
def test_a_model_that_cannot_be_had_says_why(hub, fetch, arguments, environment, says) -> None:
    hub.add("Org/Model", FILES)
    hub.add("Org/Pickles", {"config.json": b"{}", "pytorch_model.bin": b"x"})
    hub.add("Org/Huge", FILES, sizes={"model.safetensors": 10**15})
    status, said = fetch(*arguments, **environment)
    assert status == 6
    assert says in said


def test_a_hub_that_fails_once_is_asked_again(hub, fetch) -> None:
    hub.add("Org/Model", FILES, failures=2)
    assert fetch("Org/Model")[0] == 0


def test_a_download_that_stalls_is_given_up(hub, fetch, tmp_path) -> None:
    hub.add("Org/Model", FILES, stall_after=1_000_000)
    status, said = fetch("Org/Model", "--stall-s", "2")
    assert status == 6
    assert "stalled" in said
    assert list(tmp_path.rglob("*.incomplete")) == []


def test_sigterm_ends_a_download_and_leaves_no_partial_file(hub, begin, tmp_path) -> None:
    hub.add("Org/Model", FILES, stall_after=1_000_000)
    process = begin("Org/Model")
    wait_until(lambda: any(p.stat().st_size for p in tmp_path.rglob("*.incomplete")), lambda: "no partial file")
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 128 + signal.SIGTERM
    assert list(tmp_path.rglob("*.incomplete")) == []


def test_no_thread_leaves_a_partial_file_behind(tmp_path: Path) -> None:
    code = """
import itertools, os, sys, threading
from workers.trainer.fetching import PartialFiles
def download():
    for number in itertools.count():
        open(f"{sys.argv[1]}/{number}.incomplete", "wb").close()
partial = PartialFiles()
threading.Thread(target=download, daemon=True).start()
while len(os.listdir(sys.argv[1])) < 20: pass
partial.delete_and_exit(6)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (6, b"")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_download_left_goes_with_the_next(hub, begin, fetch, tmp_path) -> None:
    repository = hub.add("Org/Model", FILES, stall_after=1_000_000)
    process = begin("Org/Model")
    wait_until(lambda: any(p.stat().st_size for p in tmp_path.rglob("*.incomplete")), lambda: "no partial file")
    process.kill()
    process.wait()
    long_ago = time.time() - 3600
    for left in tmp_path.rglob("*.incomplete"):
        os.utime(left, (long_ago, long_ago))
    repository.stall_after = None
    assert fetch("Org/Model")[0] == 0
    assert list(tmp_path.rglob("*.incomplete")) == []


def test_two_runs_that_want_one_model_fetch_it_once(hub, begin) -> None:
    hub.add("Org/Model", FILES, bytes_per_s=700_000)
    both = [begin("Org/Model", "--stall-s", "2"), begin("Org/Model", "--stall-s", "2")]
    assert [process.wait(60) for process in both] == [0, 0]
    assert len([path for path in hub.asked("/blobs/") if path.startswith("GET")]) == 1


def test_no_torch_is_loaded(trainer_python: Path) -> None:
    code = "import sys, workers.trainer.fetch, huggingface_hub as h; h.snapshot_download; print('torch' in sys.modules)"
    done = subprocess.run([trainer_python, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["config.json", "model.safetensors"], ""),
        (["config.json", hub_files.INDEX, "model-00001-of-00002.safetensors"], ""),
        (["config.json", "pytorch_model.bin"], "pickles"),
        (["config.json", "model.gguf"], "GGUF"),
        (["config.json"], "no weights"),
        (["model.safetensors"], "no config.json"),
        (["adapter_config.json", "adapter_model.safetensors"], "LoRA adapter"),
    ],
)
def test_a_repository_without_a_model_to_train_is_refused_by_its_file_names(names: list[str], says: str) -> None:
    assert says in hub_files.refusal(names)
    assert bool(hub_files.refusal(names)) == bool(says)
