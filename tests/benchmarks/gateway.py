"""What the rollout gateway adds to a request: 256 agents at once through it, against the same load on the server.

`gateway_added_p95_ms`: the 95th percentile of a chat request through the gateway (rendered, tokenized, passed on,
parsed, recorded) minus that of a request for the same tokens that goes to the server directly, in the same run. The
stand-in server takes ANSWER_S for each, whatever else it does, as a busy server does for some dozens of tokens; the
agents begin spread over that time, and 256 requests are in flight throughout. Load, gateway and server are processes of
one machine, and share its cores.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.waiting import wait_until

AGENTS, EACH, ANSWER_S = 256, 5, 2.0
PROGRAM = Path(__file__).with_name("_gateway_load.py")
PYTHON = Path(os.environ.get("GRPO_TRAINER_PYTHON") or ROOT / ".venv-train" / "bin" / "python")


def measure(*, agents: int = AGENTS, each: int = EACH, answer_s: float = ANSWER_S) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model")
        make = [str(PYTHON), "-m", "workers.trainer.tiny", str(model), "--quick"]
        subprocess.run(make, cwd=ROOT, check=True, capture_output=True)
        server, gate = _free_port(), _free_port()
        with (
            _running("server", server, answer_s, port=server),
            _running("gateway", gate, server, model, agents, port=gate),
        ):
            done = subprocess.run(
                _command("load", server, gate, agents, each, answer_s),
                cwd=ROOT,
                env=_env(),
                capture_output=True,
                text=True,
            )
        if done.returncode:
            raise RuntimeError(f"The load ended with {done.returncode}: {done.stderr[-500:]}")
    found = {name: sorted(1000 * second for second in seconds) for name, seconds in json.loads(done.stdout).items()}
    direct, through = (_percentile(found[name], 95) for name in ("direct", "gateway"))
    return {
        "gateway_added_p95_ms": round(through - direct, 2),
        "gateway_p95_ms": round(through, 2),
        "direct_p95_ms": round(direct, 2),
        "gateway_added_p50_ms": round(_percentile(found["gateway"], 50) - _percentile(found["direct"], 50), 2),
        "gateway_requests": float(len(found["gateway"])),
    }


def _percentile(ordered: list[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


@contextlib.contextmanager
def _running(what: str, *arguments: object, port: int) -> Iterator[None]:
    process = subprocess.Popen(_command(what, *arguments), cwd=ROOT, env=_env(), stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: process.poll() is not None or _answers(port), seconds=120)
        yield
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == httpx.codes.OK
    return False


def _command(*arguments: object) -> list[str]:
    return [str(PYTHON), str(PROGRAM), *map(str, arguments)]


def _env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
