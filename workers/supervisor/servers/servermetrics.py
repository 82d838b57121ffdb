"""The metrics of all vLLM servers of an attempt, combined: counts and rates are summed, shares averaged."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import httpx

from workers.supervisor.servers.vllm import REQUEST_TIMEOUT_S, SUSPENDED_AFTER_S

_COUNTS = {
    "vllm:num_requests_running": "vllm/requests_running",
    "vllm:num_requests_waiting": "vllm/requests_waiting",
}
_SHARES = {
    "vllm:kv_cache_usage_perc": "vllm/kv_cache_percent",
    "vllm:gpu_cache_usage_perc": "vllm/kv_cache_percent",
}
_RATES = {
    "vllm:generation_tokens_total": "vllm/generated_tokens_per_s",
    "vllm:prompt_tokens_total": "vllm/prompt_tokens_per_s",
}
_CACHE_HITS, _CACHE_QUERIES = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
_PREFIX_HIT_PERCENT = "vllm/prefix_hit_percent"
"""Metric of the share of prompt tokens since the last sample that were in the server's prefix cache."""
_MEANS = frozenset({*_SHARES.values(), _PREFIX_HIT_PERCENT})


class Pulse:
    """Record of whether a server with requests generates tokens, written by the polling thread and read by the main
    thread. Requests present at the first poll are ignored until there is some activity: an external server may report
    requests that were abandoned long ago, until its engine's next step."""

    def __init__(self) -> None:
        self.running = self.waiting = 0
        self.still_since: float | None = None
        """Time since which the server has had requests but generated no token; None while it has no requests."""
        self.seen_at = float("-inf")
        self._was_active = False
        self._tokens: float | None = None

    def note(self, now: float, values: Mapping[str, float]) -> None:
        """Record the values of a poll. `values`: by their Prometheus names."""
        requests = self.running + self.waiting
        self.running, self.waiting = (int(values.get(name, 0)) for name in _COUNTS)
        tokens = sum(values.get(name, 0.0) for name in _RATES)
        has_progressed = tokens != self._tokens or now - self.seen_at > SUSPENDED_AFTER_S
        if self._tokens is not None:
            self._was_active = self._was_active or tokens != self._tokens or self.running + self.waiting > requests
        if not self.running + self.waiting:
            self.still_since = None
        elif self._was_active and (self.still_since is None or has_progressed):
            self.still_since = now
        self._tokens, self.seen_at = tokens, now

    def silence(self, *, after: float) -> float:
        """Return the observed seconds without a token, counted from `after`, the trainer's last output, at the
        earliest."""
        return 0.0 if self.still_since is None else self.seen_at - max(self.still_since, after)


class _MeteredServer:
    def __init__(self, address: str) -> None:
        self.pulse = Pulse()
        self._http = httpx.Client(base_url=address, timeout=REQUEST_TIMEOUT_S, trust_env=False)
        self._before: tuple[float, dict[str, float]] | None = None

    def poll(self, now: float) -> dict[str, float] | None:
        """Poll the server and return its metrics, or None without a response, because it is busy or has ended, which
        the main thread notices."""
        try:
            values, engines = prometheus(self._http.get("/metrics").text)
        except httpx.HTTPError:
            return None
        self.pulse.note(now, values)
        metrics = {name: values[key] for key, name in _COUNTS.items() if key in values}
        metrics |= {name: 100.0 * values[key] / engines[key] for key, name in _SHARES.items() if key in values}
        return metrics | self._rates(now, values)

    def _rates(self, now: float, values: dict[str, float]) -> dict[str, float]:
        current = {key: values[key] for key in (*_RATES, _CACHE_HITS, _CACHE_QUERIES) if key in values}
        previous, self._before = self._before, (now, current)
        if previous is None or now <= previous[0]:
            return {}
        seconds = now - previous[0]
        # A counter that decreased belongs to a restarted server.
        increases = {key: max(0.0, current[key] - previous[1][key]) for key in current if key in previous[1]}
        rates = {name: increases[key] / seconds for key, name in _RATES.items() if key in increases}
        if queries := increases.get(_CACHE_QUERIES):
            rates[_PREFIX_HIT_PERCENT] = min(100.0, 100.0 * increases.get(_CACHE_HITS, 0.0) / queries)
        return rates


class ServerMetrics:
    def __init__(
        self, addresses: Sequence[str], *, interval_s: float, on_sample: Callable[[dict[str, float]], None]
    ) -> None:
        self._servers = [_MeteredServer(address) for address in addresses]
        self._interval_s = interval_s
        self._on_sample = on_sample

    @property
    def pulses(self) -> list[Pulse]:
        return [server.pulse for server in self._servers]

    def tick(self, now: float) -> float:
        polled = [server.poll(now) for server in self._servers]
        available = [metrics for metrics in polled if metrics is not None]
        if len(available) == len(polled) and (sample := combine(available)):
            # The metrics of only one of two servers would look as if half of the work had stopped.
            self._on_sample(sample)
        return self._interval_s


def combine(servers: Sequence[dict[str, float]]) -> dict[str, float]:
    common_names = [name for name in servers[0] if all(name in metrics for metrics in servers)] if servers else []
    functions = {name: fmean if name in _MEANS else sum for name in common_names}
    return {name: float(functions[name]([metrics[name] for metrics in servers])) for name in common_names}


def prometheus(text: str) -> tuple[dict[str, float], dict[str, int]]:
    """Parse Prometheus' text format; return each metric's sum over its labels, and its number of lines."""
    totals: dict[str, float] = {}
    lines: dict[str, int] = {}
    for line in text.splitlines():
        name, _, remainder = line.partition("{") if "{" in line else line.partition(" ")
        value = remainder.rpartition("}")[2] if "{" in line else remainder
        if line.startswith("#") or not value.split():
            continue
        try:
            totals[name] = totals.get(name, 0.0) + float(value.split()[0])
        except ValueError:
            continue
        lines[name] = lines.get(name, 0) + 1
    return totals, lines
