"""Atropos' run-api: a child process of the trainer on a leased port, and its client.

It requires no key and clears its queue on request, so it listens on loopback only, in the run's process tree.
"""

import json
import subprocess
import time
from typing import Any

from workers import outbound
from workers.contract.run.gateway import ENVIRONMENT, PYTHON
from workers.trainer.configuration.spec import TrainerError
from workers.trainer.jobs import programs

READY_S, REQUEST_S, MAX_RESPONSE_BYTES = 120.0, 60.0, 1 << 30
_PROGRAM = (
    "import ctypes, signal, sys, uvicorn; ctypes.CDLL(None).prctl(1, signal.SIGKILL); "
    "uvicorn.run('atroposlib.api:app', host='127.0.0.1', port=int(sys.argv[1]), log_level='warning')"
)
"""Program like `run-api --host 127.0.0.1` that ends together with the trainer."""
Group = dict[str, Any]


class AtroposError(TrainerError):
    """Raised when Atropos' run-api has ended or its response is unusable."""

    exit_code = 8


class RunApi:
    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        python = programs.interpreter("Atropos", "atropos", ENVIRONMENT, PYTHON)
        self._child = subprocess.Popen([python, "-c", _PROGRAM, str(port)])

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            self._check_alive()
            try:
                self._send("GET", "/", seconds=1.0)
                return
            except AtroposError:
                time.sleep(0.1)
        raise AtroposError(f"Atropos' run-api didn't respond on port {self.port} within {READY_S:g} s.")

    def register(self, **settings: Any) -> None:
        """Register the trainer, and request a batch once, because environments wait for the first request."""
        self._send("POST", "/register", settings)
        self.batch()

    def batch(self) -> list[Group] | None:
        """Fetch and return the next batch, or None if none is complete yet."""
        return self._send("GET", "/batch").get("batch") or None

    def close(self) -> None:
        self._child.terminate()
        try:
            self._child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _check_alive(self) -> None:
        if (code := self._child.poll()) is not None:
            raise AtroposError(
                f"The Atropos API can't be reached: its run-api on port {self.port} exited with code {code}."
            )

    def _send(self, method: str, path: str, body: Any = None, *, seconds: float = REQUEST_S) -> dict[str, Any]:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        try:
            response = outbound.send(
                method, self.url + path, body=content, headers=headers, seconds=seconds, limit=MAX_RESPONSE_BYTES
            )
            document = json.loads(response.whole())
        except outbound.OutboundError as error:
            self._check_alive()
            raise AtroposError(
                f"The Atropos API can't be reached: {path} on port {self.port} failed. {error}"
            ) from error
        except ValueError as error:
            raise AtroposError(f"Atropos' run-api responded to {path} with invalid JSON.") from error
        if response.status != 200 or not isinstance(document, dict):
            raise AtroposError(f"Atropos' run-api refused {path} ({response.status}): {str(document)[:300]}")
        return document
