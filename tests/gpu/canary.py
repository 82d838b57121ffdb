"""The stale-policy canary with real vLLM: what its three metrics say when weights arrive, partly, and not at all.

    python -m tests.gpu.canary --out OUT --model FOLDER     one GPU, a small pretrained model, 8 minutes
    python -m tests.gpu.canary --out OUT --model FOLDER --rehearsal      the cases with a server, on the CPU
    python -m tests.gpu.canary --render OUT/canary.json     write tests/gpu/canary.json

Each case is the product's trainer for a few steps on sums, without a control plane; the cases with a server share one
`vllm serve`, started with the product's own arguments. The faults are put into the trainer's process: `base` samples
and scores with the base model, as a server does that forgets its adapters; `half` halves each adapter's alpha; `kept`
gives vLLM inside the trainer no weights.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workers.contract.reports.metric_names import LOGP_GAP, POLICY_CHANGE, VLLM_CHANGED, VLLM_FOLLOWED
from workers.contract.run.dataset import schema_metadata
from workers.contract.run.hardware import HardwareSpec, Rollout, ServerSpec, WeightSync
from workers.contract.run.spec import (
    AttemptSpec,
    DataSpec,
    LoraSpec,
    ModelSpec,
    Placement,
    RewardSpec,
    RunSpec,
    servers_of,
)
from workers.contract.stack import commands
from workers.contract.wire.documents import from_dict, to_json
from workers.contract.wire.names import EventKind, FileName
from workers.trainer import demo

COMMITTED = Path(__file__).with_name("canary.json")
NAMES = (POLICY_CHANGE, VLLM_CHANGED, VLLM_FOLLOWED, LOGP_GAP)
PORT = 8471
PROBLEMS = 128
LORA = LoraSpec(r=16, alpha=32)
SHARE = 0.3
FAULTS = {
    "": "",
    "base": """
from workers.trainer.rollouts import vllm_client
vllm_client.AdapterClient.model = property(lambda self: self._served_name or "")
def complete(self, prompts, sampling, whole=vllm_client.AdapterClient.complete):
    adapter, self._adapter = self._adapter, None
    try:
        return whole(self, prompts, sampling)
    finally:
        self._adapter = adapter
vllm_client.AdapterClient.complete = complete
""",
    "half": """
import json
from workers.trainer.rollouts import adapter_generation
def save(model, path, accelerator, whole=adapter_generation._save_adapter):
    whole(model, path, accelerator)
    config = json.loads((path / "adapter_config.json").read_text())
    (path / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": config["lora_alpha"] / 2}))
adapter_generation._save_adapter = save
""",
    "kept": """
from trl.generation import vllm_generation
vllm_generation.VLLMGeneration.sync_weights = lambda self: None
""",
}
START = "import runpy, sys; sys.argv[0] = 'workers.trainer'; runpy.run_module('workers.trainer', run_name='__main__')"


@dataclass(frozen=True)
class Case:
    name: str
    rollout: Rollout
    lora: bool
    rate: float
    fault: str = ""


CASES = (
    Case("server-lora", Rollout.SERVER, True, 1e-5),
    Case("server-lora-slow", Rollout.SERVER, True, 1e-6),
    Case("server-lora-base", Rollout.SERVER, True, 1e-5, "base"),
    Case("server-lora-fast", Rollout.SERVER, True, 1e-3),
    Case("server-lora-half", Rollout.SERVER, True, 1e-3, "half"),
    Case("colocate-full", Rollout.COLOCATE, False, 1e-6),
    Case("colocate-full-kept", Rollout.COLOCATE, False, 1e-6, "kept"),
    Case("colocate-lora", Rollout.COLOCATE, True, 1e-5),
)
"""In order of interest: time may run out."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.canary", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("canary-out"))
    parser.add_argument("--model", type=Path)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=540, help="start no case after that")
    parser.add_argument("--rehearsal", action="store_true")
    parser.add_argument("--render", type=Path, help="an OUT/canary.json to commit")
    options = parser.parse_args(argv)
    if options.render:
        COMMITTED.write_text(options.render.read_text(encoding="utf-8"), encoding="utf-8")
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + options.seconds
    measured: list[dict[str, Any]] = []
    with_server = [case for case in CASES if case.rollout is Rollout.SERVER]
    with server(options, with_server[0]):
        for case in with_server:
            if time.monotonic() < deadline - 60:
                measured.append(measure(case, options))
                save(measured, options.out)
    for case in () if options.rehearsal else CASES:
        if case.rollout is Rollout.COLOCATE and time.monotonic() < deadline - 90:
            measured.append(measure(case, options))
            save(measured, options.out)
    return 0


def attempt(case: Case, options: argparse.Namespace) -> Path:
    on_gpu = not options.rehearsal
    trainer: dict[str, Any] = {"trainer_gpus": 1, "cpu_slots": 0} if on_gpu else {}
    placement: dict[str, Any] = {"gpus": (0,), "server_gpus": (0,), "cpu_slots": ()} if on_gpu else {}
    sync = ServerSpec(
        weight_sync=WeightSync.LORA,
        shared=on_gpu,
        request_timeout_s=120,
        gpu_memory_utilization=SHARE,
        max_model_len=512,
    )
    generation = {
        Rollout.SERVER: {"server": sync},
        Rollout.COLOCATE: {"colocate_memory_utilization": SHARE, "colocate_max_model_len": 512},
    }[case.rollout]
    grpo = {
        "max_steps": options.steps,
        "learning_rate": case.rate,
        "max_completion_length": 64,
        "beta": 0.0,
        "lr_scheduler_type": "constant",
    }
    grpo |= {"per_device_train_batch_size": 32, "num_generations": 8, "save_strategy": "no", "seed": 7}
    folder = options.out.resolve() / case.name
    folder.mkdir(parents=True, exist_ok=True)
    run = RunSpec(
        run_id="r1",
        name=case.name,
        kind="train",
        model=ModelSpec(str(options.model.resolve())),
        data=DataSpec("problems", 1, write_problems(folder / FileName.DATASET), PROBLEMS, 0),
        rewards=(RewardSpec("accuracy", "numeric_match", 1.0), RewardSpec("variety", "unique_chars_normalised", 0.5)),
        hardware=HardwareSpec("canary", case.rollout, **generation, **(trainer or {"cpu_slots": 1, "threads": 1})),
        grpo=grpo,
        lora=LORA if case.lora else None,
    )
    ports = (PORT,) if case.rollout is Rollout.SERVER else ()
    placed = Placement("test", ports=ports, **(placement or {"cpu_slots": (0,)}))
    (folder / FileName.SPEC).write_text(to_json(AttemptSpec("r1-1", 1, 1, run, placed)), encoding="utf-8")
    return folder


def write_problems(path: Path) -> str:
    """Write sums as a dataset of chat prompts, and return the file's hash."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {"row_id": number, "prompt": [{"role": "user", "content": problem["question"]}], "answer": problem["answer"]}
        | {"test_cases": [], "metadata": "{}", "split": "train"}
        for number, problem in enumerate(demo.problems(PROBLEMS, seed=0))
    ]
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    columns = [("row_id", pa.int64()), ("prompt", pa.list_(message)), ("answer", pa.string())]
    columns += [("test_cases", pa.list_(pa.string())), ("metadata", pa.string()), ("split", pa.string())]
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(columns, metadata=schema_metadata(chat=True))), path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextlib.contextmanager
def server(options: argparse.Namespace, case: Case) -> Iterator[None]:
    """Run the server of all cases with a server, by the product's own command."""
    spec = from_dict(AttemptSpec, json.loads((attempt(case, options) / FileName.SPEC).read_bytes()))
    place = servers_of(spec)[0]
    vllm = ("python3", "-m", "workers.trainer.vllm")
    if options.rehearsal:
        vllm = (sys.executable, str(Path("tests/fakes/fake_vllm.py").resolve()))
    argv = commands.server_argv(spec, place, commands.Programs(vllm=vllm))
    env = {**os.environ, **commands.server_environment(spec, place), "FAKE_VLLM_ENGINE": "torch"}
    with (options.out / "server.log").open("w") as log:
        program = subprocess.Popen(argv, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            until_ready(program, place.address)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGTERM)
            program.wait()


def until_ready(program: subprocess.Popen[bytes], address: str) -> None:
    for _ in range(1200):
        if program.poll() is not None:
            sys.exit(f"vLLM ended with {program.returncode}; see server.log")
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=2):
            return
        time.sleep(0.25)
    sys.exit("vLLM was not ready in time; see server.log")


def measure(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    folder = attempt(case, options)
    started = time.monotonic()
    with (options.out / f"{case.name}.log").open("w") as log:
        code = subprocess.call(
            [sys.executable, "-c", FAULTS[case.fault] + START, str(folder)], stdout=log, stderr=subprocess.STDOUT
        )
    read = [json.loads(line) for line in (folder / FileName.METRICS).read_bytes().splitlines()]
    rows = [line["data"] for line in read if line["kind"] == EventKind.TRAIN and "loss" in line["data"]]
    figures = {name: [row.get(name) for row in rows] for name in NAMES}
    gap = [row.get("sampling/sampling_logp_difference/mean") for row in rows]
    result = {"name": case.name, "rate": case.rate, "fault": case.fault, "exit": code, "steps": len(rows)}
    result |= {"seconds": round(time.monotonic() - started, 1), **figures, "sampling_gap": gap}
    print(json.dumps(result), flush=True)
    return result


def save(measured: list[dict[str, Any]], out: Path) -> None:
    versions = {}
    for name in ("torch", "vllm", "trl", "transformers", "peft"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    card = (
        subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=False
        )
        if Path("/usr/bin/nvidia-smi").exists()
        else None
    )
    document = {
        "command": "python -m tests.gpu.canary --out OUT --model FOLDER",
        "date": datetime.now(UTC).date().isoformat(),
        "card": card.stdout.strip() if card else "none",
        "versions": versions,
        "cases": measured,
    }
    (out / "canary.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
