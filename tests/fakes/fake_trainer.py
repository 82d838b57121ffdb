#!/usr/bin/env python3
"""Stands in for `python -m workers.trainer FOLDER`: writes what a trainer writes, misbehaves as FAKE_TRAINER says.

FAKE_TRAINER=name:value,name,...
  steps:N (default: grpo.max_steps of the spec, or 5) · pause:SECONDS between steps (default 0.02) · forever ·
  crash:CODE after the steps · silent_exit (0 without a last line) · no_steps · refuse (exit 3) · bad_reward (exit 7) ·
  sigkill (kills itself) · ignore_term · renamed (a grandchild in a session of its own, renamed, that ignores SIGTERM) ·
  storm (a grandchild that forks again and again) · oom · torn · garbage · samples:N · noise:BYTES to the log ·
  saves (a checkpoint after each step, which replaces the one before) · whole (checkpoints can be resumed from) ·
  at_once:N (steps before the first pause) · no_save (STOP is ignored) · fill (writes until the disk is full) ·
  connect:PORT (a request a step to a server; exits 1 when it fails) · generate:PORT (a completion a step,
  awaited without a time-out) · gate (trains until FOLDER/gate.trainer exists, and ends well) ·
  hang:PARTS (after its steps stands still in a/b/c, as its activity says) ·
  gate_save (on STOP waits for FOLDER/gate.save before it saves) · gate_term (SIGTERM ends it when FOLDER/gate.term
  exists)
The run's name may say the same (behaviour.py). On GPUs it holds 20,000 MiB of each (fake_gpus.py).
Standard library only. No process of it outlives FAKE_TRAINER_LIFETIME seconds (default 120).
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import struct
import sys
import time
import urllib.request
import zipfile
from pathlib import Path

import behaviour
import fake_gpus

FOLDER = Path(sys.argv[1])
OPTIONS = behaviour.of("trainer", "FAKE_TRAINER", FOLDER)
SPEC = json.loads((FOLDER / "spec.json").read_text())


def main() -> int:
    signal.alarm(int(os.environ.get("FAKE_TRAINER_LIFETIME", "120")))
    (FOLDER / "environment.json").write_text(json.dumps(dict(os.environ)))
    print("fake trainer of", SPEC["attempt_id"], flush=True)
    if SPEC["run"]["kind"] == "warm":  # it trains nothing, and the real one needs no torch
        os.execv(sys.executable, [sys.executable, "-m", "workers.trainer", str(FOLDER)])
    if "noise" in OPTIONS:
        print("x" * int(OPTIONS["noise"]), flush=True)
    fake_gpus.hold(20_000)
    early = before_training()
    return train() if early is None else early


def before_training() -> int | None:
    if "refuse" in OPTIONS:
        print("a traceback", file=sys.stderr)
        print("num_generations must be at least 2.", file=sys.stderr)
        return 3
    if "no_steps" in OPTIONS:
        print("12 prompts are fewer than one generation batch of 16.", file=sys.stderr)
        return 4
    if "ignore_term" in OPTIONS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "gate_term" in OPTIONS:
        signal.signal(signal.SIGTERM, lambda *_: end_at_the_gate())
    if "renamed" in OPTIONS:
        spawn(renamed_grandchild)
    if "storm" in OPTIONS:
        spawn(storm)
    return None


def train() -> int:
    steps = int(OPTIONS.get("steps") or SPEC["run"]["grpo"].get("max_steps", 5))
    write("stage", stage="loading model")
    while os.environ.get("GRPO_AWAIT_SERVERS") and not (FOLDER / "servers.ready").exists():
        time.sleep(0.02)
    write("training", at=0, max_steps=steps, step=0)
    step = all_at_once(int(OPTIONS.get("at_once", "0")))
    stopped = False
    while (step < steps or "forever" in OPTIONS or waits("gate", "trainer")) and not stopped:
        step += 1
        one_step(step)
        time.sleep(float(OPTIONS.get("pause", "0.02")))
        stopped = (FOLDER / "STOP").exists() and "no_save" not in OPTIONS
    if "hang" in OPTIONS:
        tell_activity(OPTIONS["hang"].split("/"))
        stand_still()
    while stopped and waits("gate_save", "save"):
        time.sleep(0.02)
    return finish(step, stopped)


def all_at_once(steps: int) -> int:
    """The lines of so many steps, as fast as a disk takes them."""
    with open(FOLDER / "metrics.jsonl", "a") as file:
        file.writelines(line("train", n, {"reward": n / 10}) for n in range(1, steps + 1))
    return steps


def tell_activity(doing: list[str]) -> None:
    now = time.monotonic()
    record = {"rank": 0, "pid": os.getpid(), "doing": doing, "since": now, "steps_since": 0.0}
    (FOLDER / "activity-0.json").write_text(json.dumps(record))


def stand_still() -> None:
    while True:
        time.sleep(60)


def end_at_the_gate() -> None:
    while waits("gate_term", "term"):
        time.sleep(0.02)
    os._exit(128 + signal.SIGTERM)


def waits(option: str, gate: str) -> bool:
    return option in OPTIONS and not (FOLDER / f"gate.{gate}").exists()


def one_step(step: int) -> None:
    write("train", at=step, loss=1.0 / step, reward=step / 10)
    if "saves" in OPTIONS:
        save(step)
    if step == 2:
        write("metrics_left_out", at=step, names="kl")
    if "garbage" in OPTIONS and step == 2:
        with open(FOLDER / "metrics.jsonl", "ab") as file:
            file.write(
                b"\xff\xfe not json\n[1, 2]\n"
                + b'{"t":1,"kind":"train","step":2,"data":{"loss":'
                + b"[" * 5_000_000
                + b"\n"
            )
    for _ in range(int(OPTIONS.get("samples", "0"))):
        group = [{"text": "2", "tokens": 1, "reward": 1.0}, {"text": "3", "tokens": 1, "reward": 0.0}]
        row = {"step": step, "t": time.time(), "row": step, "prompt": "1+1", "answer": "2", "completions": group}
        append("samples.jsonl", json.dumps(row) + "\n")
    if "connect" in OPTIONS:
        socket.create_connection(("127.0.0.1", int(OPTIONS["connect"])), timeout=5).close()
    if "generate" in OPTIONS:
        generate(int(OPTIONS["generate"]))
    if "fill" in OPTIONS:
        with open(FOLDER / "checkpoints.bin", "ab", buffering=0) as file:
            while True:
                file.write(b"x" * 65536)


def generate(port: int) -> None:
    """As TRL's client does: without a time-out."""
    base = f"http://127.0.0.1:{port}/v1"
    with urllib.request.urlopen(f"{base}/models") as answer:
        model = json.load(answer)["data"][0]["id"]
    body = json.dumps({"model": model, "prompt": [1, 2], "max_tokens": 4}).encode()
    request = urllib.request.Request(f"{base}/completions", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request).close()


def finish(step: int, stopped: bool) -> int:
    if "oom" in OPTIONS:
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", file=sys.stderr)
        return 1
    if "bad_reward" in OPTIONS:
        told = {"reward": "judge", "row": 3, "kind": "http", "message": "It answered 503."}
        write("reward_failed", at=step, **told, count=1, of=8)
        write("trained", at=step, how="failed")
        print("The reward judge failed on 8 of 8 completions.", file=sys.stderr)
        return 7
    if "crash" in OPTIONS:
        print("RuntimeError: the reward function returned nothing", file=sys.stderr)
        return int(OPTIONS["crash"] or 1)
    if "sigkill" in OPTIONS:
        os.kill(os.getpid(), signal.SIGKILL)
    if "silent_exit" in OPTIONS:
        return 0
    if "saves" not in OPTIONS:
        save(step)
    write("trained", at=step, how="stopped" if stopped else "completed")
    if "torn" in OPTIONS:
        append("metrics.jsonl", '{"t":1,"kind":"train","st')
    return 0


def save(step: int) -> None:
    folder = FOLDER / "checkpoints"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / f"checkpoint-{step}").mkdir(parents=True)
    (folder / f"checkpoint-{step}" / "model.safetensors").write_bytes(b"0" * 1000)
    if "whole" in OPTIONS:
        make_whole(folder / f"checkpoint-{step}", step)
    write("checkpoint", at=step, step=step, path=f"checkpoints/checkpoint-{step}", bytes=1000, kept=[step])


def make_whole(folder: Path, step: int) -> None:
    """With all files that a resume looks for."""
    header = json.dumps({"weight": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        with zipfile.ZipFile(folder / name, "w") as file:
            file.writestr("data.pkl", "x")


def spawn(action) -> None:
    if os.fork() == 0:
        action()
        os._exit(0)


def renamed_grandchild() -> None:
    os.setsid()
    if os.fork() > 0:
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(15, b"VLLM::EngineCor", 0, 0, 0)  # PR_SET_NAME
    signal.alarm(int(os.environ.get("FAKE_TRAINER_LIFETIME", "120")))
    time.sleep(1000)


def storm() -> None:
    """Each generation forks the next one and ends: whoever was just seen is gone, and another one is there."""
    end = time.monotonic() + float(OPTIONS["storm"] or 20)
    while time.monotonic() < end:
        os.setsid()
        if os.fork() > 0:
            os._exit(0)
        time.sleep(0.005)


def write(event: str, *, at: int | None = None, **data: object) -> None:
    append("metrics.jsonl", line(event, at, data))


def line(kind: str, step: int | None, data: dict[str, object]) -> str:
    return json.dumps({"t": time.time(), "kind": kind, "step": step, "data": data}, separators=(",", ":")) + "\n"


def append(name: str, text: str) -> None:
    with open(FOLDER / name, "a") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main())
