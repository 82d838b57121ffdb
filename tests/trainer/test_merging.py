"""Merging an adapter with the real libraries: the merged model says the same, and nothing half-made stays."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.disk import mounted
from tests.trainer import builders
from tests.trainer.conftest import Start, Train, starting
from tests.trainer.preloaded import Preloaded
from tests.trainer.test_training import of_kind, until
from workers.contract.run.jobs import MERGE
from workers.contract.run.spec import LoraSpec
from workers.contract.wire.names import FileName
from workers.trainer.configuration import spec as specs

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

ADAPTER = "r0/1/checkpoints/checkpoint-2"


@pytest.fixture(scope="module")
def trained(preloaded: Preloaded, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RUNS_DIR with an adapter that has moved far from its base."""
    runs_dir = tmp_path_factory.mktemp("runs")
    lora, grpo = LoraSpec(r=4, alpha=64), {"max_steps": 2, "learning_rate": 2e-2}
    builders.attempt_folder(runs_dir / "r0/1", model=tiny_model, grpo=grpo, eval_rows=4, run={"lora": lora})
    with starting(preloaded) as start:
        process = start("-m", "workers.trainer", runs_dir / "r0/1")
        _, err = process.communicate(timeout=240)
        assert process.returncode == 0, err[-2000:]
    return runs_dir


@pytest.fixture
def runs_dir(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "runs"))


def merge(runs_dir: Path, *, model: Path, attempt: str = "r1/1", **settings: Any) -> Path:
    folder = runs_dir / attempt
    run = {"kind": MERGE, "lora": LoraSpec(r=4, alpha=64), "start_from": ADAPTER, "job": settings}
    return builders.attempt_folder(folder, model=model, eval_rows=4, run=run)


def refusal(done: subprocess.CompletedProcess[str], folder: Path) -> str:
    assert done.returncode == specs.EXIT_SPEC, done.stderr[-2000:]
    assert list((folder / FileName.CHECKPOINTS).glob("*")) == []
    assert of_kind(folder, "checkpoint") == []
    return done.stderr.strip().splitlines()[-1]


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def rewrite(start: Start, path: Path, code: str) -> None:
    """`code` changes `t`, the tensors of a safetensors file."""
    program = f"import torch, safetensors.torch as st; t = st.load_file({str(path)!r}); {code}"
    process = start("-c", f"{program}; st.save_file(t, {str(path)!r}, metadata={{'format': 'pt'}})")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


def test_the_merged_model_says_the_same_and_is_trained_on(runs_dir: Path, tiny_model: Path, train: Train) -> None:
    (runs_dir / ADAPTER / "preprocessor_config.json").write_text("{}")
    folder = merge(runs_dir, model=tiny_model)
    done = train(folder)
    assert done.returncode == 0, done.stderr[-2000:]
    (result,) = of_kind(folder, "result")
    assert result["data"]["facts"]["equal_tokens"] == result["data"]["facts"]["of"] == 20
    (saved,) = of_kind(folder, "checkpoint")
    assert saved["data"]["path"] == "checkpoints/checkpoint-2"
    merged = folder / saved["data"]["path"]
    names = {path.name for path in merged.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "chat_template.jinja"} <= names
    assert {"tokenizer.json", "tokenizer_config.json", "merged_from.json", "preprocessor_config.json"} <= names
    assert "adapter_config.json" not in names
    assert (merged / "model.safetensors").read_bytes() != (tiny_model / "model.safetensors").read_bytes()
    assert json.loads((merged / "merged_from.json").read_text())["adapter"] == ADAPTER

    further = builders.attempt_folder(runs_dir / "r2/1", model=merged, grpo={"max_steps": 1})
    assert train(further).returncode == 0


def test_rounding_that_changes_what_it_says_is_refused_and_float32_is_the_way_out(
    runs_dir: Path, tiny_model: Path, tmp_path: Path, train: Train, start: Start
) -> None:
    rough = Path(shutil.copytree(tiny_model, tmp_path / "other" / tiny_model.name))
    rewrite(start, rough / "model.safetensors", "t = {k: v.bfloat16() for k, v in t.items()}")
    change(rough / "config.json", dtype="bfloat16")
    folder = merge(runs_dir, model=rough)
    words = refusal(train(folder), folder)
    assert words.startswith("The merge is refused: the merged model generates ")
    assert words.endswith("merge in float32, or serve the adapter on its base.")
    (result,) = of_kind(folder, "result")
    assert result["data"]["facts"]["equal_tokens"] < 20
    assert result["data"]["facts"]["first_difference"]["token"] >= 1
    assert train(merge(runs_dir, model=rough, attempt="r2/1", dtype="float32")).returncode == 0


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            "t[next(k for k in t if 'lora_B' in k)][0, 0] = float('nan')",
            "of the adapter has values that are not finite",
        ),
        ("t = {k: v[:, :3].clone() if 'lora_A' in k else v for k, v in t.items()}", "was it trained on another base?"),
        ("t = {k: v * 1e30 for k, v in t.items()}", "has values that are not finite"),
    ],
)
def test_an_adapter_that_can_t_be_merged_is_refused(
    runs_dir: Path, tiny_model: Path, train: Train, start: Start, spoil: str, words: str
) -> None:
    rewrite(start, runs_dir / ADAPTER / "adapter_model.safetensors", spoil)
    folder = merge(runs_dir, model=tiny_model)
    assert words in refusal(train(folder), folder)


def test_what_is_no_pair_of_base_and_adapter_is_refused_before_anything_is_loaded(
    runs_dir: Path, tiny_model: Path, tmp_path: Path, train: Train
) -> None:
    def words(model: Path, number: int) -> str:
        folder = merge(runs_dir, model=model, attempt=f"r1/{number}")
        return refusal(train(folder), folder)

    def copy(name: str) -> Path:
        return Path(shutil.copytree(tiny_model, tmp_path / name / tiny_model.name))

    quantized, pickled = copy("quantised"), copy("pickled")
    change(quantized / "config.json", quantization_config={"quant_method": "fp8"})
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    assert "is stored quantized" in words(quantized, 1)
    assert "The weights are pickles" in words(pickled, 2)
    other = Path(shutil.copytree(tiny_model, tmp_path / "another"))
    assert "The adapter belongs to another base" in words(other, 3)
    (runs_dir / ADAPTER / "adapter_model.safetensors").unlink()
    assert "contains no LoRA adapter" in words(tiny_model, 4)


def test_a_disk_without_room_is_said_before_and_one_that_fills_leaves_nothing(
    trained: Path, tiny_model: Path, tmp_path: Path, train: Train, start: Start
) -> None:
    with mounted(tmp_path / "small", "3m") as small:
        (small / "r0").symlink_to(trained / "r0")
        folder = merge(small, model=tiny_model)
        assert "GB are free" in refusal(train(folder), folder)
        code = "import sys; from workers.trainer import jobs; jobs.MIN_FREE_BYTES = -10**9"
        process = start("-c", f"{code}; from workers.trainer.__main__ import main; sys.exit(main([{str(folder)!r}]))")
        out, err = process.communicate(timeout=240)
        done = subprocess.CompletedProcess([], process.returncode, out, err)
        assert "No space left on device" in refusal(done, folder)


def test_a_kill_in_the_middle_leaves_no_model(runs_dir: Path, tiny_model: Path, start: Start) -> None:
    folder = merge(runs_dir, model=tiny_model)
    process = start("-m", "workers.trainer", folder)
    until((folder / FileName.UNFINISHED / "config.json").exists, process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert [path.name for path in (folder / FileName.CHECKPOINTS).iterdir()] == ["unfinished"]
    assert of_kind(folder, "checkpoint") == []
