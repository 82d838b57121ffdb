"""The vLLM server of rollout mode `server`: how it is started, when it is ready, that it is ours, what it tells.

The routes that the weight updates need are open to whoever can connect: it listens on loopback only.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable
from typing import Any

import httpx

from workers.contract import AttemptSpec, ServerSpec, WeightSync
from workers.settings import HostSettings
from workers.supervisor import process
from workers.supervisor.loops import Loop

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What --max-lora-rank takes; an adapter of another rank needs the next larger one."""
ADAPTERS_HELD = 3
"""The current version, the one before, and the one that is being loaded."""


def argv(spec: AttemptSpec, settings: HostSettings) -> list[str]:
    server = _server(spec)
    prefix = settings.vllm_command or (settings.trainer_python, "-m", "vllm.entrypoints.cli.main")
    model = spec.run.model
    arguments = [*prefix, "serve", model.path, "--host", HOST, "--port", str(spec.placement.port)]
    arguments += ["--served-model-name", spec.attempt_id, "--dtype", server.dtype]
    arguments += ["--tensor-parallel-size", str(server.tensor_parallel)]
    arguments += ["--gpu-memory-utilization", str(server.gpu_memory_utilization)]
    # The sampler's own probabilities, of any number of tokens: the importance ratio is computed from them. Sampling
    # defaults of the model's folder would change the policy behind the trainer's back.
    arguments += ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1", "--generation-config", "vllm"]
    arguments += ["--enable-prefix-caching" if server.prefix_caching else "--no-enable-prefix-caching"]
    arguments += ["--disable-uvicorn-access-log"]
    if server.max_model_len:
        arguments += ["--max-model-len", str(server.max_model_len)]
    if server.enforce_eager:
        arguments += ["--enforce-eager"]
    if model.revision:
        arguments += ["--revision", model.revision]
    if model.trust_remote_code:
        arguments += ["--trust-remote-code"]
    return arguments + _weight_arguments(spec, server)


def environment(spec: AttemptSpec) -> dict[str, str]:
    """On top of the children's common environment."""
    # Whoever can connect can use the routes that either of them opens: only the one that the updates need.
    road = {WeightSync.NCCL: "VLLM_SERVER_DEV_MODE", WeightSync.LORA: "VLLM_ALLOW_RUNTIME_LORA_UPDATING"}
    return {road[_server(spec).weight_sync]: "1", "VLLM_NO_USAGE_STATS": "1"}


def port_is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a connection of the last minute that lingers in TIME_WAIT doesn't hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


class HealthProbe:
    """Asks until the server is ready and proved to be this attempt's. `tick` runs in a thread."""

    def __init__(self, attempt_id: str, port: int, *, tree: Callable[[], set[int]], interval_s: float) -> None:
        self._attempt_id = attempt_id
        self._port = port
        self._tree = tree
        self._interval_s = interval_s
        self._http = httpx.Client(base_url=f"http://{HOST}:{port}", timeout=5.0, trust_env=False)
        self.ready = False
        self.seen = "It did not answer on its port."
        """What the last question found, for the person who reads that it was not ready."""

    def tick(self, now: float) -> float:
        if not self.ready:
            self.seen = self._look()
            self.ready = not self.seen
        return 60.0 if self.ready else self._interval_s

    def _look(self) -> str:
        try:
            health = self._http.get("/health")
            if health.status_code != 200:
                return f"Its /health answered {health.status_code}."
            names = [str(model.get("id")) for model in self._http.get("/v1/models").json()["data"]]
        except httpx.TransportError as error:
            return f"It did not answer on port {self._port} ({type(error).__name__})."
        except (ValueError, KeyError, TypeError, AttributeError):
            return "Its /v1/models answered something else than a list of models."
        if self._attempt_id not in names:
            return f"Another server answers on port {self._port}: it serves {', '.join(names)[:100] or 'nothing'}."
        if not process.is_listening(self._port, self._tree()):
            return f"The process that listens on port {self._port} is not of this run."
        return ""


class Gate:
    """Shut until the server is proved ready. The probe has a thread of its own."""

    def __init__(self, spec: AttemptSpec, *, tree: Callable[[], set[int]], now: float, interval_s: float) -> None:
        self._probe = HealthProbe(spec.attempt_id, spec.placement.port or 0, tree=tree, interval_s=interval_s)
        self._loop = Loop("vllm-health", self._probe.tick)
        self._loop.start()
        self.deadline = now + _server(spec).ready_timeout_s

    def is_open(self) -> bool:
        if self._probe.ready:
            self._loop.stop()
        return self._probe.ready

    @property
    def seen(self) -> str:
        return self._probe.seen

    def close(self) -> None:
        self._loop.stop()


_GAUGES = {
    "vllm:num_requests_running": ("vllm/requests_running", 1.0),
    "vllm:num_requests_waiting": ("vllm/requests_waiting", 1.0),
    "vllm:kv_cache_usage_perc": ("vllm/kv_cache_percent", 100.0),
    "vllm:gpu_cache_usage_perc": ("vllm/kv_cache_percent", 100.0),
}
_COUNTERS = {
    "vllm:generation_tokens_total": "vllm/generated_tokens_per_s",
    "vllm:prompt_tokens_total": "vllm/prompt_tokens_per_s",
}


class ServerMetrics:
    """The server's own figures; `tick` runs in a thread and hands each sample over."""

    def __init__(self, port: int, *, interval_s: float, on_sample: Callable[[dict[str, float]], None]) -> None:
        self._http = httpx.Client(base_url=f"http://{HOST}:{port}", timeout=5.0, trust_env=False)
        self._interval_s = interval_s
        self._on_sample = on_sample
        self._counters: tuple[float, dict[str, float]] | None = None

    def tick(self, now: float) -> float:
        try:
            text = self._http.get("/metrics").text
        except httpx.HTTPError:
            return self._interval_s  # busy or ending; its exit is the main thread's to see
        totals = prometheus_totals(text)
        sample = {name: totals[key] * factor for key, (name, factor) in _GAUGES.items() if key in totals}
        sample.update(self._rates(now, totals))
        if sample:
            self._on_sample(sample)
        return self._interval_s

    def _rates(self, now: float, totals: dict[str, float]) -> dict[str, float]:
        current = {key: totals[key] for key in _COUNTERS if key in totals}
        before, self._counters = self._counters, (now, current)
        if before is None or now <= before[0]:
            return {}
        return {
            _COUNTERS[key]: max(0.0, value - before[1][key]) / (now - before[0])
            for key, value in current.items()
            if key in before[1]
        }


def prometheus_totals(text: str) -> dict[str, float]:
    """Each metric of the text format, summed over its labels."""
    totals: dict[str, float] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("{") if "{" in line else line.partition(" ")
        value = rest.rpartition("}")[2] if "{" in line else rest
        if line.startswith("#") or not value.split():
            continue
        try:
            totals[name] = totals.get(name, 0.0) + float(value.split()[0])
        except ValueError:
            continue
    return totals


def _weight_arguments(spec: AttemptSpec, server: ServerSpec) -> list[str]:
    if server.weight_sync == WeightSync.NCCL:
        return ["--weight-transfer-config", json.dumps({"backend": "nccl"})]
    rank = spec.run.lora.r if spec.run.lora else 16
    fitting = next((allowed for allowed in LORA_RANKS if allowed >= rank), LORA_RANKS[-1])
    return ["--enable-lora", "--max-lora-rank", str(fitting), "--max-loras", str(ADAPTERS_HELD)]


def _server(spec: AttemptSpec) -> ServerSpec:
    server: Any = spec.run.hardware.server
    if server is None or spec.placement.port is None:
        raise ValueError("rollout mode `server` needs hardware.server and placement.port")
    return server  # type: ignore[no-any-return]
