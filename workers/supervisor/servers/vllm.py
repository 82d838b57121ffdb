"""Polling of a vLLM server over HTTP (is it ready, verified to be ours, still responding?), and its log.

Each probe's `tick` runs in its own thread; the main thread reads the plain attributes.
"""

import logging
import re
from collections.abc import Callable
from pathlib import Path

import httpx

from workers.contract.run.spec import ServerPlace
from workers.supervisor.processes import listening

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 5.0
SUSPENDED_AFTER_S = 120.0
"""Interval between two polls above which the supervisor itself must have been suspended."""
MAX_BYTES = 4 << 20
"""Maximum number of bytes read from a log: a start takes a few hundred lines, and requests follow."""
_WEIGHTS = re.compile(rb"Model loading took ([\d.]+) ?Gi?B")
_CACHE = re.compile(rb"Available KV cache memory: ([\d.]+) ?Gi?B")
_TOKENS = re.compile(rb"KV cache size: ([\d,]+) tokens")
_GRAPHS = re.compile(rb"Graph capturing finished in .{1,40}?took ([\d.]+) ?Gi?B")


class HealthProbe:
    """The poller of one server, until it is ready and, if it is an own server, verified to be this attempt's, and then
    for whether it is still responding. `tree`: the pids of which one must be listening, for an own or a warm server.
    `has_ended`: whether a warm server will never respond again; called after a failure."""

    def __init__(
        self,
        place: ServerPlace,
        served_name: str,
        *,
        tree: Callable[[], set[int]],
        interval_s: float,
        watch_s: float,
        timeout_s: float,
        has_ended: Callable[[], bool] = lambda: False,
    ) -> None:
        self._has_ended = has_ended
        self.ended = False
        """True if a warm server will never respond again."""
        self.place = place
        self._served_name = served_name
        self._tree = tree
        self._interval_s = interval_s
        self._watch_s = watch_s
        self._http = httpx.Client(base_url=place.address, timeout=timeout_s, trust_env=False)
        self.ready = False
        self.seen = f"It didn't respond on port {place.port}."
        """Sentence about the problem of the last poll; "" if there was none."""
        self.silent_since: float | None = None
        """Time since which a ready server has not responded; None if it is responding."""
        self.polled_at = float("-inf")

    def tick(self, now: float) -> float:
        if not self.ready:
            self.seen = self._look()
            self.ready = not self.seen
            self.ended = not self.ready and self._has_ended()
            return self._interval_s
        self.seen = self._health()
        if not self.seen:
            self.silent_since = None
        elif self.silent_since is None or now - self.polled_at > SUSPENDED_AFTER_S:
            self.silent_since = now
        self.polled_at = now
        self.ended = bool(self.seen) and self._has_ended()
        return self._watch_s

    def silence(self, *, after: float = float("-inf")) -> float:
        """Return the seconds without a response, counted from `after`, the trainer's last output, at the earliest, and
        without our own suspensions."""
        since = self.silent_since
        return 0.0 if since is None else self.polled_at - max(since, after)

    def _look(self) -> str:
        problem = self._health()
        if problem:
            return problem
        try:
            models = self._http.get("/v1/models").json()["data"]
            names = [str(model.get("id")) for model in models]
        except httpx.HTTPError as error:
            return self._no_response(error)
        except (ValueError, KeyError, TypeError, AttributeError):
            return "Its /v1/models didn't return a list of models."
        is_ours = self.place.own or self.place.warm
        return self._check_ours(names) if is_ours else "" if names else "It serves no model."

    def _health(self) -> str:
        try:
            status = self._http.get("/health").status_code
        except httpx.HTTPError as error:
            return self._no_response(error)
        return "" if status == httpx.codes.OK else f"Its /health returned status {status}."

    def _check_ours(self, names: list[str]) -> str:
        port = self.place.port
        if self._served_name not in names:
            return f"Another server is responding on port {port}: it serves {', '.join(names)[:100] or 'nothing'}."
        if not listening.is_listening(port, self._tree()):
            owner = "the warm server" if self.place.warm else "this run"
            return f"The process listening on port {port} is not part of {owner}."
        return ""

    def _no_response(self, error: httpx.HTTPError) -> str:
        return f"It didn't respond on port {self.place.port} ({type(error).__name__})."


def describe_memory(log: Path) -> str:
    """Return a sentence about the memory that a server uses according to its log, or ""; of several processes, the
    largest numbers are used."""
    try:
        with log.open("rb") as file:
            content = file.read(MAX_BYTES)
    except OSError:
        return ""
    weights, cache, graphs = (_largest_number(pattern, content) for pattern in (_WEIGHTS, _CACHE, _GRAPHS))
    tokens = _largest_number(_TOKENS, content)
    parts = [f"{weights:.3g} GiB of weights"] if weights else []
    if cache:
        parts.append(f"{cache:.3g} GiB of KV cache" + (f" for {tokens:,.0f} tokens" if tokens else ""))
    if graphs:
        parts.append(f"{graphs:.3g} GiB of CUDA graphs")
    return f"On each of its GPUs vLLM uses {', '.join(parts)}." if parts else ""


def _largest_number(pattern: re.Pattern[bytes], content: bytes) -> float:
    numbers = [match.replace(b",", b"") for match in pattern.findall(content)]
    return max((float(number) for number in numbers if number.replace(b".", b"", 1).isdigit()), default=0.0)
