"""The vLLM server of rollout mode `server`: how it is started, when it is ready, that it is ours, what it tells.

The routes that the weight updates need are open to whoever can connect: it listens on loopback only.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

import httpx

from workers.commands import HOST, served_name
from workers.contract import AttemptSpec, ServerPlace
from workers.supervisor import process
from workers.supervisor.loops import Loop

log = logging.getLogger(__name__)


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

    def __init__(
        self,
        spec: AttemptSpec,
        place: ServerPlace,
        *,
        tree: Callable[[], set[int]],
        now: float,
        interval_s: float,
        timeout_s: float,
    ) -> None:
        self._probe = HealthProbe(served_name(spec, place), place.port, tree=tree, interval_s=interval_s)
        self._loop = Loop(f"{place.role}-health", self._probe.tick)
        self._loop.start()
        self.deadline = now + timeout_s

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
