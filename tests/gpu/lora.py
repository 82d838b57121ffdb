"""An adapter's tokens per second beside its base's, 256 requests at once, by bare vLLM on one GPU.

    python -m tests.gpu.lora --out DIR               a 7B shape, six engines, at most 6 minutes
    python -m tests.gpu.lora --out DIR --rehearsal   a tiny model by transformers and PEFT, on the CPU

Each setting has an engine of its own, and base and adapter take turns on it. `as-before` has three slots and adapters
on every linear layer, `r16` and `r32` what the product asks for now, `tuned` the kernels of contract/stack/adapters
on top of that, and `merged` is an engine without adapters. Weights are random. DIR/results.json is saved after each
engine; `python -m tests.gpu.prove --render DIR/results.json` takes it in, and writes
contract/stack/adapters/speed.json.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.gpu import models, results
from tests.gpu.results import Entry
from tests.gpu.setups import MERGED, SWAPPED
from workers.contract.run.spec import LoraSpec
from workers.contract.stack import adapters
from workers.contract.stack.adapters import Speed
from workers.contract.stack.commands import adapted_modules
from workers.contract.wire.documents import to_dict

NAME = "lora-over-base"
SHAPE = "7b"
REQUESTS, TOKENS, PROMPT = 256, 256, 32
ROUNDS = 3
BASE, ADAPTER = "base", "adapter"
TARGETS = LoraSpec().target_modules
ROADS_RANK = 32
"""Of the set-ups that train with either way of the weights."""


@dataclass(frozen=True)
class Setting:
    name: str
    rank: int
    """0: an engine without adapters."""
    slots: int = 1
    everywhere: bool = False
    """Adapters on every linear layer, whatever has weights."""
    tuned: bool = False


SETTINGS = (
    Setting("r32", 32),
    Setting("r16", 16),
    Setting("r32-tuned", 32, tuned=True),
    Setting("r16-tuned", 16, tuned=True),
    Setting("merged", 0),
    Setting("r32-as-before", 32, slots=3, everywhere=True),
)
"""In order of interest: time may run out."""

Generate = Callable[[str], int]
"""`base` or `adapter` -> the tokens that one round has made."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.lora", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rehearsal", action="store_true")
    parser.add_argument("--deadline-s", type=float, default=345.0)
    parser.add_argument("--only", default="", help="names of settings, with commas")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + options.deadline_s
    card, vllm = ("no GPU", "") if options.rehearsal else (_card(), importlib.metadata.version("vllm"))
    wanted = [name for name in options.only.split(",") if name] or (["r16", "merged"] if options.rehearsal else [])
    _import_once(rehearsal=options.rehearsal)
    found: dict[str, dict[str, Any]] = {}
    longest = 0.0
    for setting in SETTINGS:
        if (wanted and setting.name not in wanted) or deadline - time.monotonic() < 1.2 * longest:
            continue
        if setting.tuned and adapters.kernels(card, vllm) is None:
            print(f"{setting.name}: no kernels are tuned for {card} and vLLM {vllm}", flush=True)
            continue
        begun = time.monotonic()
        found[setting.name] = _in_its_own_process(setting, card, vllm, rehearsal=options.rehearsal)
        longest = max(longest, time.monotonic() - begun)
        print(f"{setting.name}: {found[setting.name]} in {time.monotonic() - begun:.0f} s", flush=True)
        results.write(options.out / "results.json", [entry(found, card, vllm, rehearsal=options.rehearsal)])
    return 1 if not found or any("failed" in one for one in found.values()) else 0


def entry(found: dict[str, dict[str, Any]], card: str, vllm: str, *, rehearsal: bool) -> Entry:
    """`lora_over_base_256`: by rank, with the kernels that the product would use."""
    ratios: dict[str, float] = {}
    for rank in (16, 32):
        plain, tuned = found.get(f"r{rank}", {}), found.get(f"r{rank}-tuned", {})
        ratio = tuned.get("over_base") or plain.get("over_base")
        if ratio:
            ratios[f"r{rank}"] = ratio
    return {
        "name": f"cpu-{NAME}" if rehearsal else NAME,
        "says": "An adapter beside its base on one vLLM engine, 256 requests of 256 tokens at once: a 7B shape, with a "
        "LoRA on the attention's projections.",
        "gpus": 0 if rehearsal else 1,
        "lora_over_base_256": ratios or None,
        "lora_settings": found,
        "lora_parameters": models.parameters(models.SHAPES[SHAPE]),
        "card": card,
        "vllm": vllm,
        "machine": f"1 × {card}; {os.cpu_count()} CPU cores",
        "versions": f"vllm {vllm}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": "python -m tests.gpu.lora --out OUT",
    }


def speeds(entries: Sequence[Entry], known: Iterable[Speed] = ()) -> list[dict[str, Any]]:
    """What contract/stack/adapters/speed.json holds of these entries; what else is known stays."""
    table = {(one.card, one.vllm, one.parameters, one.rank, one.requests): one for one in known}
    for one in entries:
        if one["name"] != NAME:
            continue
        settings = one["lora_settings"]
        for rank in (16, 32):
            plain, tuned = settings.get(f"r{rank}", {}), settings.get(f"r{rank}-tuned", {})
            key = (one["card"], one["vllm"], one["lora_parameters"], rank, REQUESTS)
            before = table.get(key)
            base = settings.get("merged", {}).get(BASE) or plain.get(BASE)
            if base and plain.get(ADAPTER):
                push = before.push_s if before else None
                table[key] = Speed(*key, base, plain[ADAPTER], tuned.get(ADAPTER), plain.get("swap_s"), push)
    return [to_dict(_with_push(one, entries)) for one in table.values()]


def _with_push(speed: Speed, entries: Iterable[Entry]) -> Speed:
    """With the push of merged weights, by what a whole step takes with it and with the swap (plan lora-roads). What the
    merged model saves in its generation is no part of the push."""
    steps = {one["name"]: one["step_median_s"] for one in entries if one.get("step_median_s") and _is_on(one, speed)}
    swapped, merged = steps.get(SWAPPED.name), steps.get(MERGED.name)
    adapter = speed.adapter_tokens_per_s(tuned=adapters.kernels(speed.card, speed.vllm) is not None)
    if speed.rank != ROADS_RANK or None in (swapped, merged, adapter, speed.base_tokens_per_s, speed.swap_s):
        return speed
    saved = REQUESTS * TOKENS * (1 / adapter - 1 / speed.base_tokens_per_s)  # type: ignore[operator]
    return replace(speed, push_s=round(max(speed.swap_s + merged - swapped + saved, 0.0), 3))


def _is_on(entry: Entry, speed: Speed) -> bool:
    return speed.card in str(entry.get("machine"))


def write_speeds(entries: Sequence[Entry]) -> None:
    """Into the product's own table."""
    if not any(one["name"] in (NAME, SWAPPED.name, MERGED.name) for one in entries):
        return
    found = speeds(entries, adapters.speeds())
    adapters.SPEED.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    adapters.speeds.cache_clear()


def _in_its_own_process(setting: Setting, card: str, vllm: str, *, rehearsal: bool) -> dict[str, Any]:
    """Its GPU's memory is free when the process is gone."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_child, args=(setting, card, vllm, rehearsal, theirs))
    process.start()
    theirs.close()
    try:
        answer: dict[str, Any] = ours.recv()
    except EOFError:
        answer = {"failed": f"the engine's process ended with {process.exitcode}"}
    process.join()
    return answer


def _import_once(*, rehearsal: bool) -> None:
    """For all engines, whose processes are forked from this one: it never touches the GPU itself."""
    for name in ("peft", "transformers") if rehearsal else ("vllm", "vllm.entrypoints.llm", "vllm.lora.request"):
        importlib.import_module(name)


def _child(setting: Setting, card: str, vllm: str, rehearsal: bool, pipe: Any) -> None:
    os.environ.pop("VLLM_TUNED_CONFIG_FOLDER", None)
    if setting.tuned and (kernels := adapters.kernels(card, vllm)):
        os.environ["VLLM_TUNED_CONFIG_FOLDER"] = str(kernels)
    try:
        with tempfile.TemporaryDirectory(prefix="lora-") as place:
            begun = time.monotonic()
            generate, swap = (_transformers if rehearsal else _vllm)(setting, Path(place))
            started = time.monotonic() - begun
            pipe.send({**_measured(setting, generate, swap), "start_s": round(started, 1)})
    except Exception as error:
        pipe.send({"failed": repr(error)[:600]})


def _measured(setting: Setting, generate: Generate, swap: Callable[[], float]) -> dict[str, Any]:
    """Tokens per second of each by rounds in turns, after one that isn't counted."""
    kinds = (BASE, ADAPTER) if setting.rank else (BASE,)
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(ROUNDS + 1):
        for kind in kinds:
            begun = time.monotonic()
            tokens = generate(kind)
            if number:
                rates[kind].append(tokens / (time.monotonic() - begun))
    found: dict[str, Any] = {kind: round(statistics.median(each), 1) for kind, each in rates.items()}
    found["rounds"] = {kind: [round(rate, 1) for rate in each] for kind, each in rates.items()}
    if setting.rank:
        pairs = zip(rates[ADAPTER], rates[BASE], strict=True)
        found["over_base"] = round(statistics.median(adapter / base for adapter, base in pairs), 4)
        found["swap_s"] = round(swap(), 3)
    return found


# --- the engines ------------------------------------------------------------------------------------------------------


def _vllm(setting: Setting, folder: Path) -> tuple[Generate, Callable[[], float]]:
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "fork")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    shape = models.SHAPES[SHAPE]
    models.make_config(folder / "model", shape)
    options: dict[str, Any] = {}
    if setting.rank:
        save_adapter(folder / "adapter", shape, setting.rank)
        options = {"enable_lora": True, "max_lora_rank": setting.rank, "max_loras": setting.slots}
        if not setting.everywhere:
            options["lora_target_modules"] = adapted_modules(LoraSpec())
    engine = LLM(
        str(folder / "model"),
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_model_len=PROMPT + TOKENS,
        max_num_seqs=REQUESTS,
        gpu_memory_utilization=0.85,
        enable_prefix_caching=False,
        compilation_config={"cudagraph_capture_sizes": [REQUESTS]},  # the only batch that the rounds have
        **options,
    )
    sampling = SamplingParams(temperature=1.0, max_tokens=TOKENS, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": [100 + (17 * n + at) % 5000 for at in range(PROMPT)]} for n in range(REQUESTS)]
    trained = LoRARequest("v1", 1, str(folder / "adapter")) if setting.rank else None

    def generate(kind: str) -> int:
        request = trained if kind == ADAPTER else None
        answers = engine.generate(prompts, sampling, use_tqdm=False, lora_request=request)
        return sum(len(one.outputs[0].token_ids) for one in answers)

    def swap() -> float:
        begun = time.monotonic()
        engine.llm_engine.add_lora(LoRARequest("v2", 2, str(folder / "adapter")))
        return time.monotonic() - begun

    return generate, swap


def _transformers(setting: Setting, folder: Path) -> tuple[Generate, Callable[[], float]]:
    """The rehearsal's: a small model on the CPU, with and without PEFT's adapter."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.set_num_threads(1)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    model: Any = Qwen2ForCausalLM(Qwen2Config(vocab_size=512, intermediate_size=128, **sizes))
    if setting.rank:
        model = get_peft_model(model, LoraConfig(r=setting.rank, target_modules=list(TARGETS)))
        model.save_pretrained(str(folder / "adapter"))
    prompts = torch.randint(10, 500, (8, 8))

    def generate(kind: str) -> int:
        off = setting.rank and kind == BASE
        with model.disable_adapter() if off else contextlib.nullcontext():
            done = model.generate(prompts, do_sample=True, min_new_tokens=8, max_new_tokens=8, pad_token_id=0)
        return int(done.shape[0]) * 8

    def swap() -> float:
        begun = time.monotonic()
        model.load_adapter(str(folder / "adapter"), "v2")
        return time.monotonic() - begun

    return generate, swap


def save_adapter(folder: Path, shape: models.Shape, rank: int) -> None:
    """A LoRA with random weights, in PEFT's files."""
    import torch
    from safetensors.torch import save_file

    draw = torch.Generator().manual_seed(rank)
    hidden, kv = shape.hidden_size, shape.num_key_value_heads * shape.head_dim
    outputs = {"q_proj": hidden, "k_proj": kv, "v_proj": kv, "o_proj": hidden}
    tensors: dict[str, Any] = {}
    for layer in range(shape.num_hidden_layers):
        for name, output in outputs.items():
            at = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            for part, size in (("lora_A", (rank, hidden)), ("lora_B", (output, rank))):
                weight = torch.empty(size, dtype=torch.bfloat16).normal_(std=0.01, generator=draw)
                tensors[f"{at}.{part}.weight"] = weight
    folder.mkdir(parents=True)
    save_file(tensors, str(folder / "adapter_model.safetensors"), metadata={"format": "pt"})
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 2 * rank, "lora_dropout": 0.0}
    config |= {"bias": "none", "target_modules": list(TARGETS), "base_model_name_or_path": ""}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")


def _card() -> str:
    from workers.supervisor.processes import gpus

    found = gpus.read()
    if not found:
        raise SystemExit("there is no GPU on this machine; --rehearsal needs none")
    return found[0].name


if __name__ == "__main__":
    sys.exit(main())
