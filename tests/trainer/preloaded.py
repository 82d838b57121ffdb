"""A process that has imported the trainer's libraries once and becomes a program at each request, by a fork.

Importing torch, transformers and TRL takes longer than most of the trainings here. `Preloaded(python)` starts such a
process; `start(["-m", "workers.trainer", folder])` is then what the interpreter would run with these arguments. Ranks
that torchrun starts are forked too. What a real start of the interpreter does is not tested in this way.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

ADDRESS = "TESTS_PRELOADED_TRAINER"
"""Names the variable in which the programs find the process that forked them."""
ROOT = Path(__file__).parents[2]
LONGEST_REQUEST = 1 << 20
LIBRARIES = (
    *(
        "workers.trainer.train",
        "workers.trainer.describe",
        "workers.trainer.scoring.reward_models",
        "torch.distributed.run",
    ),
    *("transformers.models.qwen2.modeling_qwen2", "transformers.models.qwen2.tokenization_qwen2"),
)


class Preloaded:
    """The process, started at the first request."""

    def __init__(self, python: Path) -> None:
        self.python = python
        self._folder = tempfile.TemporaryDirectory(prefix="gt-")
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        if self._server is None:
            self._server = self._started()
        return f"{self._folder.name}/s"

    def _started(self) -> subprocess.Popen[bytes]:
        address = f"{self._folder.name}/s"
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [str(self.python), "-m", "tests.trainer.preloaded", address]
        server = subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        return server

    def start(self, *arguments: object, stdin: str = "", env: Mapping[str, str] | None = None) -> Process:
        return Process(self.address, list(map(str, arguments)), stdin, {**os.environ, **(env or {})})

    def run(self, *arguments: object, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, stdin=stdin)
        out, err = process.communicate()
        assert not (check and process.returncode), err[-3000:]
        return subprocess.CompletedProcess(process.args, process.wait(), out, err)

    def has(self, package: str) -> bool:
        look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
        return self.run("-c", look, check=False).returncode == 0

    def close(self) -> None:
        """It ends with its input, and whatever it has forked with it."""
        if self._server is not None:
            self._server.communicate()
        self._folder.cleanup()


class Forked:
    """The part of `subprocess.Popen` that torchrun needs."""

    def __init__(
        self, address: str, args: list[str], env: Mapping[str, str], files: Sequence[int], new_session: bool = False
    ) -> None:
        self.args = args
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(address)
        request = {"args": args, "env": {**env, ADDRESS: address}, "new_session": new_session}
        socket.send_fds(self._connection, [json.dumps(request).encode() + b"\n"], files)
        self._answers = self._connection.makefile()
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._connection, selectors.EVENT_READ)
                if selector.select(timeout):
                    self.returncode = int(self._answers.readline())
                    self._answers.close()
                    self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Process(Forked):
    """With files for what it reads and writes."""

    def __init__(self, address: str, args: list[str], stdin: str, env: Mapping[str, str]) -> None:
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3)]
            files[0].write(stdin)
            files[0].seek(0)
            super().__init__(address, args, env, [file.fileno() for file in files])
            self._files = stack.pop_all()
        self._out, self._err = files[1:]

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        if not self._out.closed:
            self._out.seek(0)
            self._err.seek(0)
            self._texts = self._out.read(), self._err.read()
            self._files.close()
        return self._texts


class Server:
    """One thread, so that every fork is as good as a fresh start."""

    def __init__(self, address: str) -> None:
        self.selector = selectors.DefaultSelector()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(address)
        self.listener.listen(16)
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        self.children: dict[int, tuple[int, socket.socket]] = {}

    def serve(self) -> list[str]:
        """Returns in the programs that it forks, with their arguments; ends itself with its input."""
        print("ready", flush=True)
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.listener:
                    if arguments := self.fork():
                        return arguments
                elif key.fileobj == sys.stdin.fileno():
                    self.end()
                else:
                    self.reap(key.fd)

    def fork(self) -> list[str] | None:
        connection, _ = self.listener.accept()
        data, files, _, _ = socket.recv_fds(connection, LONGEST_REQUEST, 3)
        while not data.endswith(b"\n"):
            data += connection.recv(LONGEST_REQUEST)
        pid = os.fork()
        if not pid:
            return self.become(json.loads(data), files, connection)
        for file in files:
            os.close(file)
        watched = os.pidfd_open(pid)
        self.children[watched] = (pid, connection)
        self.selector.register(watched, selectors.EVENT_READ)
        return None

    def become(self, request: dict[str, Any], files: list[int], connection: socket.socket) -> list[str]:
        self.selector.close()
        self.listener.close()
        for watched, (_, other) in self.children.items():
            os.close(watched)
            other.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        if request["new_session"]:
            os.setsid()
        os.environ.clear()
        os.environ.update(request["env"])
        connection.sendall(f"{os.getpid()}\n".encode())
        connection.close()
        arguments: list[str] = request["args"]
        return arguments

    def reap(self, watched: int) -> None:
        pid, connection = self.children.pop(watched)
        self.selector.unregister(watched)
        os.close(watched)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(OSError), connection:
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())

    def end(self) -> NoReturn:
        for pid, _ in self.children.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        sys.exit()


def preload() -> None:
    """What a training loads, in the environment in which one loads it."""
    os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", DO_NOT_TRACK="1")
    os.environ.update(TOKENIZERS_PARALLELISM="false", OMP_WAIT_POLICY="PASSIVE")
    for name in LIBRARIES:
        importlib.import_module(name)
    fork_ranks()
    gc.freeze()  # a collection in a program would copy every page


def fork_ranks() -> None:
    from torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler

    def popen(handler: Any, command: Sequence[str], env: Mapping[str, str]) -> Forked:
        files = [0, *(own.fileno() if own else number for number, own in ((1, handler._stdout), (2, handler._stderr)))]
        return Forked(os.environ[ADDRESS], list(command[1:]), env, files, new_session=True)

    SubprocessHandler._popen = popen


def run(arguments: list[str]) -> None:
    """As the interpreter runs what these arguments of its command line say."""
    option, program, *rest = (argument for argument in arguments if argument != "-u")
    if option == "-m":
        sys.argv = [program, *rest]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    elif option == "-c":
        sys.argv = ["-c", *rest]
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = [option, program, *rest]
        sys.path[0] = os.path.dirname(option)
        runpy.run_path(option, run_name="__main__")


if __name__ == "__main__":
    preload()
    run(Server(sys.argv[1]).serve())
