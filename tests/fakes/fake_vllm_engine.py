"""The fake vLLM's engine process: what the front forks, and what outlives it when it is killed."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import behaviour
import fake_gpus

PR_SET_NAME = 15


class Faults(dict[str, str]):
    """What FAKE_VLLM tells this process to do wrong."""

    KNOWN = frozenset(
        {"never_ready", "dies_on_start", "dies_after", "slow", "ignores_sigterm", "health_but_hangs"}
        | {"leaves_orphan", "wrong_name", "gate", "gate_term", "one_by_one", "generates_in", "hangs_at"}
        | {"ignores_adapters"}
    )

    @classmethod
    def from_env(cls) -> Faults:
        faults = cls(behaviour.of("vllm", "FAKE_VLLM", Path.cwd()))
        if unknown := set(faults) - cls.KNOWN:
            sys.exit(f"FAKE_VLLM: unknown fault {', '.join(sorted(unknown))}")
        return faults

    def has(self, name: str) -> bool:
        return name in self

    def seconds(self, name: str) -> float:
        return float(self.get(name) or 0)


class Engine:
    """The front's end of the engine process: a socket with one JSON line each way a request."""

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self.pid = pid
        self._stream = sock.makefile("rw")
        self._lock = threading.Lock()
        self.stopping = threading.Event()

    @classmethod
    def start(cls, options: argparse.Namespace, faults: Faults, server: socketserver.BaseServer) -> Engine:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            server.server_close()
            run_engine(theirs, options, faults)
        theirs.close()
        return cls(pid, ours)

    def ask(self, **request: Any) -> dict[str, Any]:
        with self._lock:
            self._stream.write(json.dumps(request) + "\n")
            self._stream.flush()
            answer: dict[str, Any] = json.loads(self._stream.readline() or '{"error": "EngineDeadError"}')
            return answer

    def wait_until_ready(self) -> None:
        self._stream.readline()

    def ended(self) -> bool:
        """Without reaping it: `wait` does."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait(self) -> int:
        """Wait for the engine's end, which is the front's too: 0 when it was asked for."""
        os.waitpid(self.pid, 0)
        if not self.stopping.is_set():
            log("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.", "ERROR")
        sys.stdout.flush()
        os._exit(0 if self.stopping.is_set() else 1)  # the server's threads may be in the middle of an answer

    def shut_down(self) -> None:
        self.stopping.set()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)


def run_engine(sock: socket.socket, options: argparse.Namespace, faults: Faults) -> None:
    """The engine process: its own session, its own title. Ends only by a signal, as vLLM's does."""
    os.setsid()
    live_no_longer_than_allowed()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    retitle("VLLM::EngineCore")
    if faults.has("ignores_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if faults.has("gate_term"):
        signal.signal(signal.SIGTERM, lambda *_: end_at_the_gate())
    if faults.has("leaves_orphan"):
        leave_orphan()
    fake_gpus.hold(60_000)
    backend = load_backend(options)
    with sock.makefile("rw") as stream:
        stream.write("ready\n")
        stream.flush()
        for line in stream:
            answer = backend(json.loads(line))
            with contextlib.suppress(BrokenPipeError):
                stream.write(json.dumps(answer) + "\n")
                stream.flush()
    while True:
        signal.pause()  # the front is gone; the engine holds its memory until somebody ends it


def end_at_the_gate() -> None:
    while not Path("gate.term").exists():
        time.sleep(0.02)
    os._exit(128 + signal.SIGTERM)


def leave_orphan() -> None:
    """A worker that nobody's process group or parent chain leads to, and that SIGTERM doesn't end."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            live_no_longer_than_allowed()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            retitle("VLLM::Worker")
            os.closerange(3, 64)
            while True:
                signal.pause()
        os._exit(0)
    os.wait()


def retitle(title: str) -> None:
    """Write the title over the argument and environment blocks, as setproctitle does: /proc/PID/environ is empty
    afterwards. The variables themselves move to the heap first, since libraries still read them."""
    for name, value in list(os.environ.items()):
        os.environ[name] = value
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    arg_start, env_end = int(fields[45]), int(fields[48])
    ctypes.memset(arg_start, 0, env_end - arg_start)
    ctypes.memmove(arg_start, title.encode(), len(title))
    ctypes.CDLL(None).prctl(PR_SET_NAME, title.encode()[:15], 0, 0, 0)


def live_no_longer_than_allowed() -> None:
    signal.alarm(int(os.environ.get("FAKE_VLLM_LIFETIME", "900")))


Backend = Callable[[dict[str, Any]], dict[str, Any]]


def load_backend(options: argparse.Namespace) -> Backend:
    if os.environ.get("FAKE_VLLM_ENGINE", "stub") == "stub":
        return stub_backend
    import fake_vllm_torch

    return fake_vllm_torch.Backend(
        options.model, options.dtype, processed_logprobs=options.logprobs_mode == "processed_logprobs"
    )


def stub_backend(request: dict[str, Any]) -> dict[str, Any]:
    """Canned completions: the prompt's own tokens over and over, each as probable as the next of a hundred."""
    if request["op"] == "score":
        names = [[str(token) for token in prompt] for prompt in request["prompts"]]
        rows = [[None, *[-4.60517] * (len(prompt) - 1)] for prompt in names]
        tops = [[None, *({name: -4.60517} for name in prompt[1:])] for prompt in names]
        columns = zip(names, rows, tops, strict=True)
        return {"scored": [{"tokens": tokens, "logprobs": values, "top": top} for tokens, values, top in columns]}
    if request["op"] != "generate":
        return {}
    sequences = []
    for prompt in request["prompts"]:
        for _ in range(request["n"]):
            tokens = [prompt[i % len(prompt)] if prompt else 0 for i in range(request["max_tokens"])]
            sequences.append({"tokens": tokens, "logprobs": [-4.60517] * len(tokens), "ended": False})
    return {"sequences": sequences}


def log(text: str, level: str = "INFO") -> None:
    print(f"{level} {time.strftime('%m-%d %H:%M:%S')} [fake_vllm.py] {text}", flush=True)
