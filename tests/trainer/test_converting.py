"""Conversions to GGUF by a small script in llama.cpp's place: what is kept, what is told, and what it isn't given."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.disk import mounted
from tests.trainer import builders
from tests.trainer.test_training import of_kind
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import attempt
from workers.contract.run.jobs import GGUF, GGUF_SCRIPT
from workers.contract.stack import commands as stack
from workers.contract.wire.names import FileName, StopMode
from workers.settings import HostSettings
from workers.supervisor import commands
from workers.trainer.configuration import spec as specs

pytestmark = pytest.mark.processes

MODEL = "r0/1/checkpoints/checkpoint-2"
HEAD = """
import json, os, pathlib, sys
import conversion
out = pathlib.Path(sys.argv[sys.argv.index("--outfile") + 1])
print(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ)}), file=sys.stderr)
"""
WRITES = f"""{HEAD}
for percent in (0, 50, 100):
    print(f"Writing: {{percent}}%|##|", end="\\r", file=sys.stderr)
out.write_bytes(b"GGUF" + sys.argv[-1].encode())
"""
HALF = f"{HEAD}\nout.write_bytes(b'GGUF')\n"
HANGS = f"{HALF}\nimport time; time.sleep(600)"
SECRETS = {"HF_TOKEN": "hf-1", "GRPO_SECRET_JUDGE": "key", "HTTPS_PROXY": "http://me:word@proxy", "HF_HOME": "/h"}
Convert = Callable[..., "subprocess.CompletedProcess[str]"]


def put(folder: Path, script: str) -> Path:
    """In llama.cpp's place, with a module beside it."""
    folder.mkdir(exist_ok=True)
    (folder / GGUF_SCRIPT).write_text(script)
    (folder / "conversion.py").touch()
    return folder


def put_model(runs_dir: Path) -> Path:
    model = runs_dir / MODEL
    model.mkdir(parents=True)
    (model / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    for name in ("config.json", "tokenizer.json"):
        (model / name).write_text("{}")
    return model


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    put_model(tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture
def convert(tmp_path: Path) -> Convert:
    """convert(runs_dir, script): as a host starts it, whose own environment has secrets."""

    def run(runs_dir: Path, script: str = WRITES, *, llama: bool = True, **job: str) -> Any:
        settings = {"name": "sums-f16", "type": "f16", **job}
        folder = builders.attempt_folder(
            runs_dir / "r1/1", model="/nowhere", run={"kind": GGUF, "start_from": MODEL, "job": settings}
        )
        there = put(tmp_path / "llama.cpp", script) if llama else None
        host = HostSettings(runs_dir, "http://127.0.0.1:9", llama_cpp_dir=there)
        env = commands.trainer_environment(builders.spec_of(folder), host, {**os.environ, **SECRETS}, SECRETS)
        assert not {"HF_TOKEN", "GRPO_SECRET_JUDGE"} & set(env)
        argv = stack.trainer_argv(folder, commands.programs(host))
        return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=100)

    return run


def refused(done: subprocess.CompletedProcess[str], runs_dir: Path) -> str:
    """Its sentence; nothing half-made is left."""
    assert done.returncode == specs.EXIT_SPEC, done.stderr[-2000:]
    assert [path for path in (runs_dir / "r1").rglob("*") if "gguf" in path.name or path.name == "unfinished"] == []
    assert of_kind(runs_dir / "r1/1", "result") == []
    return done.stderr.strip().splitlines()[-1]


def test_a_model_becomes_one_file_with_its_checksum_and_progress(convert: Convert, runs_dir: Path) -> None:
    done = convert(runs_dir)
    assert done.returncode == 0, done.stderr[-2000:]
    folder = runs_dir / "r1/1"
    file = folder / FileName.GGUF / "sums-f16.gguf"
    facts = of_kind(folder, "result")[-1]["data"]["facts"]
    checksum = hashlib.sha256(b"GGUFf16").hexdigest()
    assert facts == {"folder": str(file.parent), "name": file.name, "size": 7, "sha256": checksum}
    assert file.read_bytes() == b"GGUFf16"
    assert not (folder / FileName.UNFINISHED).exists()
    assert of_kind(folder, "train")[-1]["data"] == {"job/done": 100.0}
    assert "Writing" not in done.stdout


def test_the_script_gets_an_argument_list_and_no_secret(convert: Convert, runs_dir: Path) -> None:
    told = json.loads(next(line for line in convert(runs_dir).stdout.splitlines() if line.startswith("{")))
    out = str(runs_dir / "r1/1" / FileName.UNFINISHED / "sums-f16.gguf")
    assert told["argv"] == [str(runs_dir / MODEL), "--outfile", out, "--outtype", "f16"]
    assert not {"HF_TOKEN", "GRPO_SECRET_JUDGE", "HTTPS_PROXY"} & set(told["env"])
    assert not {"hf-1", "key", "/h"} & set(told["env"].values())
    assert told["env"]["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (f"{HALF}\nsys.exit('Model Foo is not supported')", "convert_hf_to_gguf.py failed: Model Foo is not supported"),
        ("import gguf", "must be a complete checkout, with gguf-py. ModuleNotFoundError: No module named 'gguf'"),
        ("import no_such_module", "a module that the trainer's interpreter"),
        (f"{HALF}\nraise OSError(28, 'No space left on device')", "the GGUF file didn't fit in"),
        (f"{HALF}\nos.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        (f"{HEAD}\nout.write_bytes(b'what')", "reported no error but didn't write a GGUF file"),
        ("pass", "write a GGUF file: it printed nothing"),
    ],
)
def test_a_script_that_fails_is_told_with_its_last_line(
    convert: Convert, runs_dir: Path, script: str, words: str
) -> None:
    assert words in refused(convert(runs_dir, script), runs_dir)


def spoil(model: Path) -> dict[str, Callable[[], object]]:
    return {
        "merge it into its base": (model / "adapter_config.json").touch,
        "The weights are pickles": lambda: (model / "model.safetensors").rename(model / "pytorch_model.bin"),
        "is incomplete": (model / "tokenizer.json").unlink,
        "contains its own code (modeling.py)": (model / "modeling.py").touch,
    }


@pytest.mark.parametrize("words", spoil(Path()))
def test_what_can_t_be_converted_is_refused_before_the_script_runs(
    convert: Convert, runs_dir: Path, words: str
) -> None:
    spoil(runs_dir / MODEL)[words]()
    done = convert(runs_dir)
    assert words in refused(done, runs_dir)
    assert "argv" not in done.stdout


def test_a_host_without_the_script_and_a_name_that_is_a_path_are_refused(convert: Convert, runs_dir: Path) -> None:
    assert "GRPO_LLAMA_CPP_DIR is not set to a checkout" in refused(convert(runs_dir, llama=False), runs_dir)
    for wrong in ({"name": "../x"}, {"type": "--help"}):
        shutil.rmtree(runs_dir / "r1")
        assert "can't be created" in refused(convert(runs_dir, **wrong), runs_dir)


def test_a_disk_without_room_is_said_before(convert: Convert, tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "3m") as small:
        put_model(small)
        done = convert(small)
        assert "GB are free" in refused(done, small)
        assert "argv" not in done.stdout


def test_a_stop_ends_a_script_that_hangs_and_leaves_nothing(tmp_path: Path) -> None:
    put_model(tmp_path / "runs")
    with attempt(tmp_path, trainer_command=(), llama_cpp_dir=put(tmp_path / "llama.cpp", HANGS)) as made:
        job = {"name": "sums", "type": "f16"}
        (tmp_path / "models/tiny/config.json").write_text("{}")
        made.use(replace(made.spec, run=replace(made.spec.run, kind=GGUF, start_from=MODEL, job=job)))
        made.launch()
        half = made.folder / FileName.UNFINISHED / "sums.gguf"
        wait_until(half.exists, made.why)
        made.ask_to_stop(StopMode.NOW)
        assert made.wait_for_end()["receipt"]["free"] is True
        made.wait_until_gone()
        assert not half.parent.exists()
        assert '"argv"' in made.log("trainer")
