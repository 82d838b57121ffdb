"""One launch of a set-up: from the New run page to a kill in the middle of a generation, and its receipt."""

from __future__ import annotations

import re
import statistics
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import httpx

from tests.gpu.figures import Row, step_seconds, steps_of
from tests.gpu.installation import Site, State, busy
from tests.gpu.units import Setup

INTO_STEP = 0.3
"""How far into a step's time a trainer that generates itself is killed: a step begins with its generation, which long
completions make the longest part."""
TOO_FAR = 0.6
"""Of a step long enough to hit: then the next one is waited for."""
_RUNNING = re.compile(r"^vllm:num_requests_running(?:\{.*\})? (\S+)", re.MULTILINE)
FREE_S = 60.0
"""Longest wait for a stopped run's receipt."""


class Stage(StrEnum):
    GOING = "going"
    KILLED = "killed"
    DONE = "done"
    FAILED = "failed"


@dataclass
class Launch:
    setup: Setup
    site: Site
    number: int
    steps: int
    """Steps to see before the kill."""
    limit_s: float
    run: str = ""
    sent: float = 0.0
    answered: float = 0.0
    stage: Stage = Stage.GOING
    failed: str = ""
    state: State | None = None
    seen: list[Row] = field(default_factory=list)
    samples: list[Row] = field(default_factory=list)
    killed_at: float = 0.0
    killed_when: str = ""
    free_wall: float | None = None
    _low: int = 0

    def send(self, profile: str, changes: dict[str, Any]) -> None:
        site = self.site
        choices = {
            **site.launch_values(profile),
            **changes,
            "name": f"{self.setup.name} {self.number}",
            "model": str(site.models / self.setup.shape),
            "dataset_version": site.dataset,
            "reward_version": site.rewards,
            "profile": profile,
            "max_steps": 100_000,
            "save_steps": 100_000,
        }
        self.run, self.sent, self.answered = site.person.launch(choices)

    @property
    def gpus(self) -> tuple[int, ...]:
        """The trainer's first; those of a server that shares them once."""
        placement = self.state.placement if self.state else {}
        return tuple(dict.fromkeys((*placement.get("gpus", ()), *placement.get("server_gpus", ()))))

    @property
    def dispatched(self) -> float | None:
        return self.state.dispatched if self.state else None

    @property
    def ended(self) -> float | None:
        return self.state.ended if self.state else None

    @property
    def held(self) -> set[str]:
        """What another run waits for."""
        slots = self.state.placement.get("cpu_slots", ()) if self.state else ()
        return {*(f"gpu:{gpu}" for gpu in self.gpus), *(f"cpu:{slot}" for slot in slots)}

    @property
    def over(self) -> bool:
        return self.stage in (Stage.DONE, Stage.FAILED)

    @property
    def begun(self) -> float:
        """When it had its GPUs; the page's sending where it never waited."""
        if self.dispatched is None or self.dispatched <= self.answered + 1:
            return self.sent
        return self.dispatched

    @property
    def waited(self) -> bool:
        return self.begun != self.sent

    def tick(self, now: float) -> None:
        if self.over:
            return
        self.state = self.site.state(self.run)
        if self.stage is Stage.GOING:
            self._going(now)
        elif self.stage is Stage.KILLED:
            self._killed(now)

    def give_up(self, why: str) -> None:
        """Whatever it holds is asked back; the receipt is not waited for here."""
        self.failed = self.failed or why
        going, self.stage = not self.over, Stage.FAILED
        if going and self.run:
            try:
                self.site.person.stop(self.run)
            except (RuntimeError, httpx.HTTPError) as error:
                self.failed += f"; and it could not be stopped: {error}"

    # --- going --------------------------------------------------------------------------------------------

    def _going(self, now: float) -> None:
        assert self.state is not None
        if self.state.status in ("succeeded", "failed", "stopped"):
            self._ended_by_itself()
        elif self.state.dispatched is not None and now - self.state.dispatched > self.limit_s:
            why = f"{len(self.seen)} of {self.steps} steps after {self.limit_s:.0f} s ({self.state.phase})"
            self.give_up(why)
        else:
            self.seen = steps_of(self.site.rows(self.run, "train"))
            if len(self.seen) >= self.steps and (when := self._in_mid_generation(now)):
                self.killed_when, self.stage = when, Stage.KILLED
                self.killed_at = self.site.person.stop(self.run)

    def _ended_by_itself(self) -> None:
        assert self.state is not None
        self.collect()
        self.failed = f"it ended by itself: {self.state.status}, {self.state.reason}. {self.state.detail}"[:1500]
        self.stage = Stage.FAILED

    def _in_mid_generation(self, now: float) -> str:
        """How it is known to generate right now; empty when it doesn't, or that can't be told yet."""
        assert self.state is not None
        ports = self.state.placement.get("ports") or ()
        if ports:
            running = sum(_requests_running(port) for port in ports)
            requests = "request" if round(running) == 1 else "requests"
            return f"with {running:.0f} {requests} running in vLLM" if running else ""
        lasts = statistics.median(step_seconds(self.seen)) if len(self.seen) > 1 else 1.0
        share = (now - self.seen[-1].t) / lasts
        if lasts > 1 and share > TOO_FAR:
            return ""
        return f"{100 * share:.0f}% into a step, which begins with its generation" if share >= INTO_STEP else ""

    # --- killed -------------------------------------------------------------------------------------------

    def _killed(self, now: float) -> None:
        assert self.state is not None
        self._read_gpus()
        if self.state.receipt is not None and self.state.ended is not None:
            if self.free_wall is not None or not self.gpus or now - self.killed_at > 10:
                self.collect()
                self.stage = Stage.DONE
        elif now - self.killed_at > FREE_S:
            self.give_up(f"no receipt {FREE_S:.0f} s after the stop ({self.state.status}, {self.state.phase})")

    def _read_gpus(self) -> None:
        """A second reader, beside the supervisor's: low in two readings."""
        if self.free_wall is not None or not self.gpus:
            return
        self._low = 0 if busy(self.site.baseline, self.gpus) else self._low + 1
        if self._low == 2:
            self.free_wall = time.time() - self.killed_at

    def collect(self) -> None:
        self.seen = steps_of(self.site.rows(self.run, "train"))
        self.samples = self.site.rows(self.run, "system")

    def kill(self) -> dict[str, Any]:
        """What the receipt says, with what was seen from outside."""
        receipt = (self.state.receipt if self.state else None) or {}
        since = self.site.stopping_since(self.run)
        asked = max(0.0, since - self.killed_at) if since else 0.0
        times = [gpu["seconds_to_free"] for gpu in receipt.get("gpus", ())]
        free_s = None if None in times else asked + max([*times, receipt.get("seconds_to_gone") or 0.0])
        return {
            "when": self.killed_when,
            "free": bool(receipt.get("free")) and self.site.person.sees_a_free_receipt(self.run),
            "free_s": None if free_s is None else round(free_s, 3),
            "free_wall_s": None if self.free_wall is None else round(self.free_wall, 3),
            "gone_s": receipt.get("seconds_to_gone"),
            "processes": receipt.get("processes_ended"),
            "orphans": receipt.get("orphans_found"),
            "receipt": receipt,
        }


def _requests_running(port: int) -> float:
    try:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=2, trust_env=False).text
    except httpx.HTTPError:
        return 0.0
    return sum(float(value) for value in _RUNNING.findall(text))
