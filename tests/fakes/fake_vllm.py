#!/usr/bin/env python3
"""Stands in for `vllm`: started, spoken to, and killed as the real thing is, on a machine without a GPU.

    python fake_vllm.py serve MODEL --host 127.0.0.1 --port 8000 --served-model-name NAME ...

Like vLLM it is a front process with an engine child that renames itself and wipes its environment block, refuses
flags it doesn't know, answers nothing before the engine is ready, keeps its development and adapter routes shut unless
told otherwise, and leaves the engine behind when the front is killed with SIGKILL.

FAKE_VLLM_ENGINE=stub (default): standard library only, canned tokens, ready at once.
FAKE_VLLM_ENGINE=torch: real sampling with transformers and peft (fake_vllm_torch.py), in the trainer's interpreter.
FAKE_VLLM=never_ready | dies_on_start | dies_after:SECONDS | slow:SECONDS | ignores_sigterm | health_but_hangs |
          leaves_orphan | wrong_name | gate (not ready before gate.vllm exists in its folder) |
          gate_term (SIGTERM ends it, and its engine, when gate.term exists) |
          one_by_one:SECONDS (the groups of all requests are done one after the other, each in that time) |
          generates_in:SECONDS (each generation takes at least that long) |
          hangs_at:NUMBER (the generation with this number, from 1, never ends); several with commas.
          The run's name may say the same (behaviour.py). On GPUs the engine holds 60,000 MiB of each (fake_gpus.py).
FAKE_VLLM_LIFETIME=SECONDS (default 900): no process of it lives longer, whatever a test has forgotten.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path

from fake_vllm_engine import Engine, Faults, end_at_the_gate, live_no_longer_than_allowed, log
from fake_vllm_server import State, bind

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def main() -> int:
    options = parse(sys.argv[1:])
    faults = Faults.from_env()
    live_no_longer_than_allowed()
    server = bind(options)
    engine = Engine.start(options, faults, server)
    if faults.has("ignores_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif faults.has("gate_term"):
        signal.signal(signal.SIGTERM, lambda *_: end_at_the_gate())
    else:
        signal.signal(signal.SIGTERM, lambda *_: engine.shut_down())
    signal.signal(signal.SIGINT, lambda *_: engine.shut_down())
    if faults.has("dies_on_start"):
        log("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}", "ERROR")
        os.kill(engine.pid, signal.SIGKILL)
        return 1
    engine.wait_until_ready()
    if not faults.has("never_ready"):
        engine.stopping.wait(faults.seconds("slow"))
        while faults.has("gate") and not Path("gate.vllm").exists() and not engine.ended():
            engine.stopping.wait(0.02)
        server.state = State(options, faults, engine)
        server.server_activate()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        log("Model loading took 0.5 GiB and 0.02 seconds")
        log("Available KV cache memory: 1.82 GiB")
        log("GPU KV cache size: 34,112 tokens")
        log("Application startup complete.")
    if faults.has("dies_after"):
        threading.Timer(faults.seconds("dies_after"), os.kill, (engine.pid, signal.SIGKILL)).start()
    return engine.wait()


def parse(argv: list[str]) -> argparse.Namespace:
    """The flags of `vllm serve` that anything here may pass; like vLLM, an unknown one is an error (exit code 2)."""
    parser = argparse.ArgumentParser(prog="vllm", allow_abbrev=False)
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    text = ("host", "revision", "tokenizer", "kv-cache-dtype", "load-format", "generation-config", "quantization")
    text += ("distributed-executor-backend", "uvicorn-log-level", "chat-template", "model-impl")
    for name in text:
        parser.add_argument(f"--{name}")
    whole = ("max-model-len", "max-num-seqs", "max-num-batched-tokens", "max-cpu-loras", "seed", "data-parallel-size")
    for name in (*whole, "max-cudagraph-capture-size", "kv-cache-memory-bytes"):
        parser.add_argument(f"--{name}", type=int)
    switches = ("enable-lora", "enforce-eager", "enable-prefix-caching", "enable-sleep-mode", "enable-scale-out")
    for name in (*switches, "trust-remote-code", "enable-log-requests", "disable-log-stats"):
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--disable-uvicorn-access-log", action="store_true")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name", nargs="+")
    parser.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.9)
    parser.add_argument("--dtype", default="auto", choices=["auto", "half", "float16", "bfloat16", "float", "float32"])
    parser.add_argument("--max-lora-rank", type=int, default=16, choices=LORA_RANKS)
    parser.add_argument("--max-loras", type=int, default=1)
    parser.add_argument("--lora-target-modules", nargs="+")
    parser.add_argument("--fully-sharded-loras", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--max-logprobs", type=int, default=20)
    parser.add_argument("--logprobs-mode", default="raw_logprobs", choices=["raw_logprobs", "processed_logprobs"])
    parser.add_argument("--weight-transfer-config", type=json.loads)
    parser.add_argument("--api-server-count", type=int)
    options = parser.parse_args(argv)
    fronts = options.api_server_count or options.data_parallel_size or 1
    if fronts > 1 and os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING") == "1":
        parser.error("VLLM_ALLOW_RUNTIME_LORA_UPDATING cannot be used with api_server_count > 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
