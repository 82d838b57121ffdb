"""Whether a small pretrained model learns: held-out accuracy before and after training, by the product and by bare TRL.

    python -m tests.gpu.learning --out OUT --model FOLDER --task sums --by product --gpu 0
    python -m tests.gpu.learning --out OUT --model FOLDER --task gsm8k --train FILE --test FILE --by bare --gpu 1
    python -m tests.gpu.learning --out OUT --model FOLDER --task sums --by product --rehearsal   some steps on the CPU
    python -m tests.gpu.learning --render OUT     write tests/gpu/learning.json

Both ways train the same rows in the same order with the same settings and seed, with vLLM inside the trainer: the
product's trainer without a control plane, and TRL's own trainer with nothing but the reward library. The accuracy is
measured by neither: vLLM alone answers the held-out problems greedily, with the weights before and after.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from workers.contract.run.dataset import schema_metadata
from workers.contract.run.hardware import HardwareSpec, Rollout
from workers.contract.run.prompts import PromptsSpec
from workers.contract.run.spec import (
    AttemptSpec,
    DataSpec,
    LoraSpec,
    ModelSpec,
    Placement,
    RewardSpec,
    RunSpec,
)
from workers.contract.wire.documents import to_json
from workers.contract.wire.names import EventKind, FileName
from workers.rewards.library import LIBRARY
from workers.rewards.scoring import score

COMMITTED = Path(__file__).with_name("learning.json")
REWARD = RewardSpec("accuracy", "numeric_match", 1.0, {"source": "last number"})
TOKENS = {"sums": 48, "gsm8k": 256}
STEPS = {"sums": 300, "gsm8k": 300}
HELD_OUT = 512
SEED = 7
Row = dict[str, str]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.learning", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("learning-out"))
    parser.add_argument("--model", type=Path)
    parser.add_argument("--task", choices=TOKENS, default="sums")
    parser.add_argument("--by", choices=("product", "bare"), default="product")
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--dynamic", action="store_true", help="replace groups without spread (the product only)")
    parser.add_argument("--rate", type=float, default=2e-6)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--share", type=float, default=0.3, help="of the GPU's memory, for vLLM")
    parser.add_argument("--train", type=Path, help="JSON lines with question and answer")
    parser.add_argument("--test", type=Path)
    parser.add_argument("--rehearsal", action="store_true")
    parser.add_argument("--render", type=Path, help="an OUT whose results are to be committed")
    options = parser.parse_args(argv)
    if options.dynamic and options.by == "bare":
        parser.error("--dynamic: bare TRL has no dynamic sampling; leave it out, or choose --by product.")
    if options.render:
        results = [json.loads(path.read_text()) for path in sorted(options.render.glob("*.json"))]
        lines = ",\n".join(json.dumps(result) for result in results)
        COMMITTED.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
        return 0
    os.environ["CUDA_VISIBLE_DEVICES"] = "" if options.rehearsal else str(options.gpu)
    options.out.mkdir(parents=True, exist_ok=True)
    measure(options)
    return 0


def measure(options: argparse.Namespace) -> None:
    steps = options.steps or (2 if options.rehearsal else STEPS[options.task])
    train, held_out = problems(options)
    parts = [options.task, "lora" if options.lora else "full", options.by, "dynamic" if options.dynamic else ""]
    name = "-".join(filter(None, parts))
    folder = options.out.resolve() / name
    folder.mkdir(parents=True, exist_ok=True)
    write_spec(folder, options, train, steps)
    begun = time.monotonic()
    with (options.out / f"{name}.log").open("w") as log:
        code = subprocess.call(command_of(options.by, folder, steps), stdout=log, stderr=subprocess.STDOUT)
    seconds = round(time.monotonic() - begun, 1)
    rows = logged(folder, options.by)
    rewards = [row["reward"] for row in rows if "reward" in row]
    result = {
        "name": name,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
        "exit": code,
        "steps": steps,
        "learning_rate": options.rate,
        "seconds": seconds,
        "reward_first_tenth": mean(rewards[: max(1, len(rewards) // 10)]),
        "reward_last_tenth": mean(rewards[-max(1, len(rewards) // 10) :]),
        "step_s": mean([row["step_time"] for row in rows[2:] if "step_time" in row]),
        "rewards": [round(reward, 4) for reward in rewards],
    }
    save(options.out, result)
    saved = sorted(folder.glob("**/checkpoint-*"), key=lambda path: path.stat().st_mtime)
    if not saved:
        print(f"{name} wrote no checkpoint: it ended with {code}; see {options.out / name}.log", file=sys.stderr)
    elif not options.rehearsal:
        result |= accuracies(options, saved[-1], held_out)
        save(options.out, result)
    print(json.dumps({key: value for key, value in result.items() if key != "rewards"}), flush=True)


def save(out: Path, result: dict[str, Any]) -> None:
    (out / f"{result['name']}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def problems(options: argparse.Namespace) -> tuple[list[Row], list[Row]]:
    """Return the rows to train on and the held-out ones."""
    if options.task == "gsm8k":
        train, test = ([json.loads(line) for line in path.open()] for path in (options.train, options.test))
        return [final(row) for row in train], [final(row) for row in test][:HELD_OUT]
    draw = random.Random(SEED)
    pairs = draw.sample([(a, b) for a in range(10, 100) for b in range(10, 100)], 4096 + HELD_OUT)
    rows = [{"question": f"What is {a} + {b}?", "answer": str(a + b)} for a, b in pairs]
    return rows[HELD_OUT:], rows[:HELD_OUT]


def final(row: Row) -> Row:
    return {"question": row["question"], "answer": row["answer"].rpartition("####")[2].strip()}


def write_spec(folder: Path, options: argparse.Namespace, rows: list[Row], steps: int) -> None:
    on_gpu = not options.rehearsal
    hardware = (
        HardwareSpec(
            "learning",
            Rollout.COLOCATE,
            trainer_gpus=1,
            cpu_slots=0,
            colocate_memory_utilization=options.share,
            colocate_max_model_len=1024,
        )
        if on_gpu
        else HardwareSpec("learning", Rollout.TRANSFORMERS, cpu_slots=1, threads=1)
    )
    grpo = {
        "max_steps": steps,
        "save_steps": steps,
        "learning_rate": options.rate,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": 10,
        "max_completion_length": TOKENS[options.task],
        "beta": 0.0,
        "per_device_train_batch_size": 64 if on_gpu else 4,
        "num_generations": 8 if on_gpu else 2,
        "gradient_accumulation_steps": 1,
        "bf16": on_gpu,
        "seed": SEED,
    }
    run = RunSpec(
        run_id="r1",
        name=options.task,
        kind="train",
        model=ModelSpec(str(options.model.resolve())),
        data=DataSpec("problems", 1, write_rows(folder / FileName.DATASET, rows), len(rows), 0),
        rewards=(REWARD,),
        hardware=hardware,
        grpo=grpo,
        lora=LoraSpec(r=16, alpha=32) if options.lora else None,
        prompts=PromptsSpec(extra_rounds=2 if options.dynamic else 0),
    )
    placement = Placement("test", gpus=(0,), cpu_slots=()) if on_gpu else Placement("test", cpu_slots=(0,))
    (folder / FileName.SPEC).write_text(to_json(AttemptSpec("r1-1", 1, 1, run, placement)), encoding="utf-8")


def write_rows(path: Path, rows: list[Row]) -> str:
    """Write the rows as a dataset of chat prompts, and return the file's hash."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    whole = [
        {"row_id": number, "prompt": messages(row), "answer": row["answer"], "test_cases": [], "metadata": "{}"}
        | {"split": "train"}
        for number, row in enumerate(rows)
    ]
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    columns = [("row_id", pa.int64()), ("prompt", pa.list_(message)), ("answer", pa.string())]
    columns += [("test_cases", pa.list_(pa.string())), ("metadata", pa.string()), ("split", pa.string())]
    pq.write_table(pa.Table.from_pylist(whole, schema=pa.schema(columns, metadata=schema_metadata(chat=True))), path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def messages(row: Row) -> list[dict[str, str]]:
    return [{"role": "user", "content": row["question"]}]


def command_of(by: str, folder: Path, steps: int) -> list[str]:
    if by == "product":
        return [sys.executable, "-m", "workers.trainer", str(folder)]
    files = [str(folder), str(folder / FileName.SPEC), str(folder / FileName.DATASET)]
    return [sys.executable, "-m", "tests.gpu.bare_trl", *files, "--steps", str(steps), "--save"]


def logged(folder: Path, by: str) -> list[dict[str, Any]]:
    """Return the values of each step, as the trainer logged them."""
    path = folder / (FileName.METRICS if by == "product" else "bare.jsonl")
    lines = [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
    if by == "product":
        return [line["data"] for line in lines if line["kind"] == EventKind.TRAIN and "loss" in line["data"]]
    return [line["values"] for line in lines if "loss" in line["values"]]


def accuracies(options: argparse.Namespace, trained: Path, rows: list[Row]) -> dict[str, Any]:
    """Measure the accuracy on held-out rows before and after. Runs of one task share the figures from before."""
    shared = options.out / "before" / f"{options.task}.json"
    if not shared.exists():
        shared.parent.mkdir(exist_ok=True)
        shared.write_text(json.dumps(accuracy(options, options.model, rows)), encoding="utf-8")
    return {
        "held_out": len(rows),
        "before": json.loads(shared.read_bytes()),
        "after": accuracy(options, trained, rows, adapter=options.lora),
    }


def accuracy(options: argparse.Namespace, weights: Path, rows: list[Row], *, adapter: bool = False) -> dict[str, Any]:
    """Measure the share of rows answered rightly with greedy sampling by vLLM, with its 95 % interval (Wilson's)."""
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    engine = LLM(
        str(options.model if adapter else weights),
        tokenizer=str(options.model),
        max_model_len=1024,
        gpu_memory_utilization=options.share,
        enable_lora=adapter,
    )
    request = LoRARequest("trained", 1, str(weights)) if adapter else None
    sampling = SamplingParams(temperature=0.0, max_tokens=TOKENS[options.task])
    chats = engine.chat([messages(row) for row in rows], sampling, use_tqdm=False, lora_request=request)  # type: ignore[arg-type]
    with suppress(AttributeError):
        engine.llm_engine.engine_core.shutdown()
    texts = [chat.outputs[0].text for chat in chats]
    right = sum(value == 1.0 for value in score(LIBRARY[REWARD.function], texts, list(rows), REWARD.params).values)
    return {"accuracy": round(right / len(rows), 4), "interval": wilson(right, len(rows)), "sample": texts[:2]}


def wilson(right: int, count: int, z: float = 1.96) -> list[float]:
    """Return Wilson's score interval of a share, for 95 % by default (Wilson 1927)."""
    share = right / count
    middle = share + z * z / (2 * count)
    half = z * (share * (1 - share) / count + z * z / (4 * count * count)) ** 0.5
    return [round((middle + sign * half) / (1 + z * z / count), 4) for sign in (-1, 1)]


def mean(values: list[float]) -> float | None:
    return round(fmean(values), 4) if values else None


def versions() -> dict[str, str]:
    found = {}
    for name in ("torch", "vllm", "trl", "transformers", "peft"):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


if __name__ == "__main__":
    sys.exit(main())
