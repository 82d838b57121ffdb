"""Polling one vLLM server over HTTP: ready, verified to be ours, still answering.

Each probe's `tick` runs in its own thread; the main thread reads the plain attributes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import httpx

from workers.contract.run.spec import ServerPlace
from workers.supervisor.processes import listening

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 5.0
PAUSE_S = 120.0
"""A longer interval between two polls means that the supervisor itself stood still."""


class HealthProbe:
    """Polls until the server is ready and, if own, verified to be this attempt's; then whether it still answers."""

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
        """`tree`: the processes of which one has to listen, for an own or a warm server. `has_ended`: asked after a
        failure, of a warm server."""
        self._has_ended = has_ended
        self.ended = False
        """A warm server that will never answer again."""
        self.place = place
        self._served_name = served_name
        self._tree = tree
        self._interval_s = interval_s
        self._watch_s = watch_s
        self._http = httpx.Client(base_url=place.address, timeout=timeout_s, trust_env=False)
        self.ready = False
        self.seen = f"It did not answer on port {place.port}."
        """The last poll's result, for messages that it was not ready; "" if all was well."""
        self.silent_since: float | None = None
        """When a server that had been ready stopped answering."""
        self.asked_at = float("-inf")

    def tick(self, now: float) -> float:
        if not self.ready:
            self.seen = self._look()
            self.ready = not self.seen
            self.ended = not self.ready and self._has_ended()
            return self._interval_s
        self.seen = self._health()
        if not self.seen:
            self.silent_since = None
        elif self.silent_since is None or now - self.asked_at > PAUSE_S:
            self.silent_since = now
        self.asked_at = now
        self.ended = bool(self.seen) and self._has_ended()
        return self._watch_s

    def silence(self, *, after: float = float("-inf")) -> float:
        """Seconds without an answer `after` the trainer's last output, up to the last poll; our own pauses don't
        count."""
        since = self.silent_since
        return 0.0 if since is None else self.asked_at - max(since, after)

    def _look(self) -> str:
        problem = self._health()
        if problem:
            return problem
        try:
            models = self._http.get("/v1/models").json()["data"]
            names = [str(model.get("id")) for model in models]
        except httpx.HTTPError as error:
            return self._no_answer(error)
        except (ValueError, KeyError, TypeError, AttributeError):
            return "Its /v1/models answered something else than a list of models."
        ours = self.place.own or self.place.warm
        return self._proved_ours(names) if ours else "" if names else "It serves no model."

    def _health(self) -> str:
        try:
            status = self._http.get("/health").status_code
        except httpx.HTTPError as error:
            return self._no_answer(error)
        return "" if status == httpx.codes.OK else f"Its /health answered {status}."

    def _proved_ours(self, names: list[str]) -> str:
        port = self.place.port
        if self._served_name not in names:
            return f"Another server answers on port {port}: it serves {', '.join(names)[:100] or 'nothing'}."
        if not listening.is_listening(port, self._tree()):
            whose = "the warm server" if self.place.warm else "this run"
            return f"The process that listens on port {port} is not of {whose}."
        return ""

    def _no_answer(self, error: httpx.HTTPError) -> str:
        return f"It did not answer on port {self.place.port} ({type(error).__name__})."
