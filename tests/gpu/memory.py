"""The GPU memory of a trainer, measured by phase, for the memory model: `python -m tests.gpu.memory --out OUT`.

Each case is the product's trainer on a model with random weights, two steps, no web and no vLLM: the figures are
torch's own of that one process, so several cases share a card. Completions are random tokens up to the limit unless a
case generates. `--only NAME,NAME` runs some; `--render OUT/memory.json` writes tests/gpu/memory.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.gpu import models
from tests.gpu.memory_cases import CASES, FAMILIES, Case
from workers.contract.run.dataset import schema_metadata
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.spec import AttemptSpec, DataSpec, ModelSpec, Placement, RewardSpec, RunSpec
from workers.contract.wire.documents import to_json
from workers.contract.wire.names import FileName

GIB = 2**30
CARD_GIB, AT_ONCE, LIMIT_S = 132.0, 5, 240.0
COMMITTED = Path(__file__).with_name("memory.json")

# --- the parent: models, folders, as many cases at once as the card holds ---------------------------------------------


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.memory", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("memory-out"))
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=540, help="start no case after that")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--render", type=Path, help="an OUT/memory.json to commit")
    options = parser.parse_args(argv)
    if options.child:
        return _child(options.child)
    if options.render:
        measured = json.loads(options.render.read_text(encoding="utf-8"))
        cases = sorted(filter(None, map(_committed, measured["cases"])), key=lambda case: str(case["name"]))
        write(COMMITTED, {**measured, "cases": cases})
        return 0
    wanted = [name for name in options.only.split(",") if name]
    chosen = [case for case in CASES if not wanted or case.name in wanted]
    options.out.mkdir(parents=True, exist_ok=True)
    _run_all(chosen, options.out.resolve(), time.monotonic() + options.seconds)
    return 0


def _run_all(cases: list[Case], out: Path, ends: float) -> None:
    work = Path(os.environ.get("MEMORY_WORK", "/tmp/memory-work"))
    waiting, running, results = list(cases), {}, []
    made: dict[str, subprocess.Popen[bytes]] = {}
    for name in dict.fromkeys(case.model for case in cases):
        made[name] = subprocess.Popen(
            [sys.executable, "-c", f"from tests.gpu import memory; memory.make_model({name!r}, {str(work)!r})"]
        )
        if len(made) % 4 == 0:
            for process in made.values():
                process.wait()
    for process in made.values():
        process.wait()
    print(f"models made, {ends - time.monotonic():.0f} s left", flush=True)
    while waiting or running:
        now = time.monotonic()
        for name, (process, case, started) in list(running.items()):
            if process.poll() is None and now - started < LIMIT_S:
                continue
            process.kill()
            process.wait()
            del running[name]
            results.append(_result(case, work / name, process.returncode, now - started))
            write(out / "memory.json", {**_about(), "cases": results})
        room = CARD_GIB - sum(case.gib for _, case, _ in running.values())
        case = next((case for case in waiting if case.gib <= room), None)
        if case is not None and len(running) < AT_ONCE and now < ends:
            waiting.remove(case)
            folder = prepare(case, work)
            log = (folder / "log").open("wb")
            command = [sys.executable, "-m", "tests.gpu.memory", "--child", str(folder)]
            running[case.name] = (subprocess.Popen(command, stdout=log, stderr=log), case, now)
            continue
        if not running and (now >= ends or case is None):
            break
        time.sleep(0.3)
    for case in waiting:
        print(f"not run: {case.name}", flush=True)


def _about() -> dict[str, Any]:
    from importlib.metadata import version

    import torch

    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    names = ("torch", "transformers", "trl", "peft", "accelerate", "deepspeed", "bitsandbytes")
    return {
        "command": "python -m tests.gpu.memory --out OUT",
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"1 × {card}; {os.cpu_count()} CPU cores",
        "versions": ", ".join(f"{name} {version(name)}" for name in names),
    }


def _committed(case: dict[str, Any]) -> dict[str, Any] | None:
    """What of a case is kept; None if it failed."""
    if "phases" not in case:
        return None
    names = ("name", "model", "batch", "passes", "generates", "merges", "hardware", "grpo", "lora", "parameters")
    figures = ("allocated_gib", "reserved_gib", "outside_torch_gib", "held_gib")
    return {
        **{name: case[name] for name in names},
        "prompt_tokens": case["shape"][1] - case["tokens"],
        "completion_tokens": case["tokens"],
        **{name: case[name] for name in figures},
        "peaks_gib": {phase: peaks[0] for phase, peaks in case["phases"].items()},
    }


def write(path: Path, document: dict[str, Any]) -> None:
    """A line for each case."""
    head = json.dumps({**document, "cases": []}, indent=1, ensure_ascii=False).removesuffix("[]\n}")
    cases = ",\n  ".join(json.dumps(case, ensure_ascii=False) for case in document["cases"])
    path.write_text(f"{head}[\n  {cases}\n ]\n}}\n", encoding="utf-8")


def _result(case: Case, folder: Path, code: int, seconds: float) -> dict[str, Any]:
    path = folder / "phases.json"
    measured = json.loads(path.read_text()) if path.exists() else {}
    result = {**asdict(case), "code": code, "seconds": round(seconds, 1), **measured}
    if not measured.get("steps"):
        result["failed"] = (folder / "log").read_text(errors="replace")[-1500:]
    print(case.name, code, f"{seconds:.0f} s", {k: v for k, v in measured.items() if k != "phases"}, flush=True)
    if "failed" in result:
        print(result["failed"][-700:], flush=True)
    return result


def make_model(name: str, work: str) -> None:
    folder = Path(work) / "models" / name
    if (folder / "config.json").exists():
        return
    if name in models.SHAPES:
        models.make(folder, models.SHAPES[name])
        return
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    values = dict(FAMILIES[name])
    tokenizer = models.make_tokenizer(values["vocab_size"])
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    config = AutoConfig.for_model(values.pop("model_type"), **{**values, **ids, "max_position_embeddings": 16_384})
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def prepare(case: Case, work: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = work / case.name
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"row_id": n, "prompt": [{"role": "user", "content": " ".join(models.TEXT[:3])}], "answer": "12",
         "test_cases": [], "metadata": "{}", "split": "train"}
        for n in range(64)
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows, schema=pa.schema([
        ("row_id", pa.int64()),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("answer", pa.string()), ("test_cases", pa.list_(pa.string())), ("metadata", pa.string()),
        ("split", pa.string()),
    ], metadata=schema_metadata(chat=True)))  # fmt: skip
    pq.write_table(table, folder / FileName.DATASET)
    content = (folder / FileName.DATASET).read_bytes()
    gpus = 0 if os.environ.get("MEMORY_CPU") else 1
    hardware = HardwareSpec("memory", trainer_gpus=gpus, cpu_slots=1 - gpus, **case.hardware)
    grpo = {"max_steps": 2, "learning_rate": 1e-6, "per_device_train_batch_size": case.batch,
            "gradient_accumulation_steps": case.passes, "num_generations": 2, "max_completion_length": case.tokens,
            "save_strategy": "no", "seed": 7, "beta": 0.0, "vllm_importance_sampling_correction": False,
            **case.grpo}  # fmt: skip
    run = RunSpec("r1", case.name, "train", ModelSpec(str(work / "models" / case.model)),
                  DataSpec("problems", 1, hashlib.sha256(content).hexdigest(), len(rows), 0),
                  (RewardSpec("variety", "unique_chars_normalised", 1.0),), hardware, grpo, case.lora,
                  case.attention)  # fmt: skip
    placement = Placement("test", gpus=(0,)[:gpus], cpu_slots=(0,)[gpus:])
    (folder / FileName.SPEC).write_text(to_json(AttemptSpec("r1-1", 1, 1, run, placement)), encoding="utf-8")
    (folder / "case.json").write_text(json.dumps(asdict(case)), encoding="utf-8")
    return folder


# --- the child: the product's trainer, with a look at torch's peaks at the ends of its parts --------------------------


def _child(folder: Path) -> int:
    case = json.loads((folder / "case.json").read_text())
    if case["hardware"].get("strategy", "none") != "none":
        meeting = folder / "meet"
        os.environ |= {"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "1", "GRPO_RANKS_MEET_IN": str(meeting),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000)}  # fmt: skip
    from workers.contract.run.spec import AttemptSpec
    from workers.contract.wire.documents import from_dict
    from workers.trainer.configuration import environment

    environment.prepare(from_dict(AttemptSpec, json.loads((folder / FileName.SPEC).read_bytes())))
    phases = Phases(folder)
    _hook(case, phases)
    from workers.trainer.__main__ import main as trainer

    return trainer([str(folder)])


class Phases:
    """Peaks of allocated and reserved memory by phase, in GiB, and what is held at some moments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.peaks: dict[str, list[float]] = {}
        self.held: dict[str, float] = {}
        self.shape = [0, 0]
        self.steps = 0
        self.parameters: dict[str, float] = {}

    def end(self, phase: str) -> None:
        """Everything since the last end was `phase`."""
        import torch

        if not torch.cuda.is_available():
            return
        peak = [torch.cuda.max_memory_allocated() / GIB, torch.cuda.max_memory_reserved() / GIB]
        old = self.peaks.get(phase, [0.0, 0.0])
        self.peaks[phase] = [round(max(pair), 3) for pair in zip(old, peak, strict=True)]
        torch.cuda.reset_peak_memory_stats()

    def hold(self, moment: str) -> None:
        import torch

        if torch.cuda.is_available():
            self.held[moment] = round(torch.cuda.memory_allocated() / GIB, 3)

    @contextmanager
    def within(self, before: str, phase: str) -> Iterator[None]:
        self.end(before)
        yield
        self.end(phase)

    def write(self) -> None:
        peaks = list(self.peaks.values())
        document = {
            "steps": self.steps,
            "shape": self.shape,
            "allocated_gib": max((peak[0] for peak in peaks), default=0),
            "reserved_gib": max((peak[1] for peak in peaks), default=0),
            "outside_torch_gib": outside_torch(),
            "held_gib": self.held,
            "parameters": self.parameters,
            "phases": self.peaks,
        }
        (self.folder / "phases.json").write_text(json.dumps(document), encoding="utf-8")


def outside_torch() -> float | None:
    """What NVML shows for this process beyond torch's reserved memory: CUDA context, libraries."""
    try:
        import pynvml
        import torch

        pynvml.nvmlInit()
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(card):
            if process.pid == os.getpid() and process.usedGpuMemory:
                return round((process.usedGpuMemory - torch.cuda.memory_reserved()) / GIB, 3)
    except Exception:
        return None
    return None


def _hook(case: dict[str, Any], phases: Phases) -> None:
    import torch
    from accelerate import Accelerator
    from trl import GRPOTrainer

    from workers.trainer import trainer as ours
    from workers.trainer.configuration import hardware

    if case["merges"]:
        hardware.merges = lambda spec: True
    watched = ours.WatchedTrainer
    generate = GRPOTrainer._generate_single_turn
    logps = GRPOTrainer._get_per_token_logps_and_entropies
    backward, loss, step = Accelerator.backward, GRPOTrainer._compute_loss, watched.training_step
    init = watched.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        phases.end("loading")
        phases.hold("loaded")
        for parameter in self.model.parameters():
            name = f"{str(parameter.dtype).removeprefix('torch.')}{' trained' if parameter.requires_grad else ''}"
            count = getattr(parameter, "ds_numel", parameter.numel())
            phases.parameters[name] = phases.parameters.get(name, 0) + count

    def fake(self: Any, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        phases.end("between")
        if case["generates"]:
            result = generate(self, prompt_ids, *args, **kwargs)
        else:
            draw = torch.Generator().manual_seed(self._step)
            ids = torch.randint(10, 3_000, (len(prompt_ids), case["tokens"]), generator=draw)
            result = ids.tolist(), None
        phases.end("generation")
        return result

    def scored(self: Any, model: Any, input_ids: Any, *args: Any, **kwargs: Any) -> Any:
        phases.shape = [max(old, new) for old, new in zip(phases.shape, input_ids.shape, strict=True)]
        phases.end("between")
        result = logps(self, model, input_ids, *args, **kwargs)
        phases.end("forward" if torch.is_grad_enabled() else "logps")
        return result

    def computed(self: Any, *args: Any, **kwargs: Any) -> Any:
        phases.hold("before forward")
        result = loss(self, *args, **kwargs)
        phases.hold("after forward")
        return result

    def back(self: Any, *args: Any, **kwargs: Any) -> None:
        phases.end("loss")
        backward(self, *args, **kwargs)
        phases.end("backward")
        phases.hold("after backward")

    def stepped(self: Any, *args: Any, **kwargs: Any) -> Any:
        phases.end("optimizer")
        phases.hold("between steps")
        phases.steps = self.state.global_step
        phases.write()
        result = step(self, *args, **kwargs)
        phases.end("update")
        phases.steps = self.state.global_step + 1
        phases.write()
        return result

    log = watched.log

    def logged(self: Any, *args: Any, **kwargs: Any) -> Any:
        phases.end("optimizer")
        phases.write()
        return log(self, *args, **kwargs)

    watched.__init__, watched.training_step = made, stepped
    watched.log = logged
    GRPOTrainer._generate_single_turn = fake
    GRPOTrainer._get_per_token_logps_and_entropies = scored
    GRPOTrainer._compute_loss = computed
    Accelerator.backward = back


if __name__ == "__main__":
    sys.exit(main())
