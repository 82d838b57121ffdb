"""A fake vLLM server for a test: started on a free port, waited for, and gone with all its processes afterwards."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

import httpx
import psutil

from tests.trainer.preloaded import Forked, Preloaded
from tests.waiting import wait_until

PROGRAM = Path(__file__).with_name("fake_vllm.py")


class RunningVllm:
    """`args` are further flags of `vllm serve`, `env` further variables; the log is a file. `preloaded` runs it in the
    trainer's interpreter."""

    def __init__(
        self, *args: str, preloaded: Preloaded | None = None, model: str = "some/model", name: str = "r-1", **env: str
    ) -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        argv = [str(PROGRAM), "serve", model, "--host", "127.0.0.1", "--port", str(self.port)]
        argv += ["--served-model-name", name, *args]
        env = {**os.environ, "FAKE_VLLM_LIFETIME": "120", **env}
        self._log = tempfile.NamedTemporaryFile()  # noqa: SIM115  closed with the server
        log = self._log.fileno()
        self.front = (
            Forked(preloaded.address, argv, env, [0, log, log])
            if preloaded
            else subprocess.Popen([sys.executable, *argv], env=env, stdout=log, stderr=log)
        )
        wait_until(lambda: self.front.poll() is not None or self._engines(), self.log)
        self.children = self._engines()

    def _engines(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error, IndexError):
            return [p for p in psutil.Process(self.front.pid).children() if p.cmdline()[0].startswith("VLLM")]
        return []

    def __enter__(self) -> RunningVllm:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.front.kill()
        self.front.wait()
        for child in self.children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._log.close()

    def ready(self) -> RunningVllm:
        wait_until(lambda: self.get("/health") == httpx.codes.OK, self.log)
        return self

    def log(self) -> str:
        return Path(self._log.name).read_text(errors="replace")

    def get(self, path: str) -> int | None:
        """The status, or None while nobody listens."""
        try:
            return httpx.get(self.url + path, timeout=5).status_code
        except httpx.ConnectError:
            return None

    def post(self, path: str, **body: object) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=5)

    def models(self) -> list[str]:
        return [model["id"] for model in httpx.get(self.url + "/v1/models", timeout=5).json()["data"]]
