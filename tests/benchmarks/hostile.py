"""Whether hostile requests stop the web for everybody else.

A real web process is attacked by a signed-in operator: each entry in turn that meets foreign text (`_attacks.py`), by
several clients at once, while another process asks /healthz every 10 ms. `healthz_p99_ms` is the 99th percentile of its
answers during the worst attack, `healthz_p99_idle_ms` the same before and after all attacks, so that their ratio also
tells of a machine with other work; `healthz_p99_median_ms` is that of the middle attack. `stalled` counts the attacks
during which an answer took longer than STALL_S or never came, and `improper` those with an answer that was neither a
page nor a refusal in words, such as that the server is busy. Web, children, attackers and the process that asks share
the machine's cores.
"""

from __future__ import annotations

import argparse
import logging
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from django.core.management.base import CommandError

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.benchmarks._attacks import ATTACKS, PREPARED, Attack, prepared
from tests.benchmarks._figures import percentile
from tests.stack import Stack

PROBE = Path(__file__).with_name("_health_probe.py")
BUSY = 503
STALL_S = 1.0
IDLE_S = 3.0
PATIENCE_S = 90.0


@dataclass
class Outcome:
    """What an attack did."""

    name: str
    began: float
    ended: float = 0.0
    statuses: list[int] = field(default_factory=list)

    @property
    def proper(self) -> bool:
        return bool(self.statuses) and all(200 <= status < 500 or status == BUSY for status in self.statuses)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    options = _options(argv or [])
    attacks = [one for one in ATTACKS if options.only in one.name]
    if not attacks:
        names = "\n".join(one.name for one in ATTACKS)
        raise CommandError(f"No attack has “{options.only}” in its name. The attacks are:\n{names}")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    stack = Stack.start(Path(tempfile.mkdtemp(prefix="gt-")))  # short: there are sockets in it
    try:
        return measured(stack, attacks, options.at_once, options.rounds)
    finally:
        stack.stop()


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench hostile", description=__doc__)
    parser.add_argument("--at-once", type=int, default=4, help="clients that send the same attack")
    parser.add_argument("--rounds", type=int, default=3, help="how often each of them sends it")
    parser.add_argument("--only", default="", help="a part of the names of the attacks to carry out")
    return parser.parse_args(argv)


def measured(stack: Stack, attacks: Sequence[Attack], at_once: int, rounds: int) -> dict[str, Any]:
    facts = stack.django(PREPARED, **prepared())
    with _Probe(stack.installation.port) as probe:
        before = _idle()
        outcomes = [_carried_out(stack, attack, facts, at_once, rounds) for attack in attacks]
        after = _idle()
    waits = {outcome.name: probe.during(outcome) for outcome in outcomes}
    idle_p99 = percentile(probe.during(before) + probe.during(after), 0.99)
    p99s = {outcome.name: percentile(waits[outcome.name], 0.99) for outcome in outcomes}
    stalled = [name for name in p99s if max(waits[name]) > 1000 * STALL_S]
    improper = [f"{outcome.name}: {sorted(set(outcome.statuses))}" for outcome in outcomes if not outcome.proper]
    return {
        "healthz_p99_ms": round(max(p99s.values()), 1),
        "healthz_p99_idle_ms": round(idle_p99, 1),
        "healthz_p99_ratio": round(max(p99s.values()) / idle_p99, 1),
        "healthz_p99_median_ms": round(median(p99s.values()), 1),
        "healthz_longest_ms": round(max(max(waits[name]) for name in p99s), 1),
        "attacks": len(outcomes),
        "requests": sum(len(outcome.statuses) for outcome in outcomes),
        "stalled": len(stalled),
        "improper": len(improper),
        "offenders": {
            "healthz_p99_ms": [
                f"{name}: {p99s[name]:.0f} ms" for name in sorted(p99s, key=lambda name: -p99s[name])[:5]
            ],
            "stalled": stalled,
            "improper": improper,
        },
        "each": {outcome.name: _about(outcome, waits[outcome.name]) for outcome in outcomes},
    }


def _idle() -> Outcome:
    outcome = Outcome("", time.monotonic())
    time.sleep(IDLE_S)  # no condition to wait for: this long, nothing happens
    outcome.ended = time.monotonic()
    return outcome


def _about(outcome: Outcome, waits: list[float]) -> str:
    statuses = ", ".join(f"{count} × {status}" for status, count in sorted(Counter(outcome.statuses).items()))
    took, p99 = outcome.ended - outcome.began, percentile(waits, 0.99)
    return f"{statuses} in {took:.1f} s; /healthz {p99:.0f} ms (p99), {max(waits):.0f} ms (longest)"


def _carried_out(stack: Stack, attack: Attack, facts: dict[str, Any], at_once: int, rounds: int) -> Outcome:
    outcome = Outcome(attack.name, time.monotonic())

    def client(_: int) -> list[int]:
        with stack.client("operator") as sender:
            sender.timeout = httpx.Timeout(PATIENCE_S)
            return [_status(attack, sender, facts) for _ in range(rounds)]

    with ThreadPoolExecutor(at_once) as clients:
        outcome.statuses = [status for statuses in clients.map(client, range(at_once)) for status in statuses]
    outcome.ended = time.monotonic()
    return outcome


def _status(attack: Attack, sender: httpx.Client, facts: dict[str, Any]) -> int:
    try:
        return attack.carry_out(sender, facts)
    except httpx.TransportError:  # refused while its body was still on the way, or never answered
        return 0


class _Probe:
    """The process that asks /healthz, and its answers."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, str(PROBE), str(port)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answers: list[tuple[float, float]] = []
        self._reader = threading.Thread(target=self._read)

    def __enter__(self) -> _Probe:
        self._reader.start()
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._reader.join()
        self._process.stdout.close()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            asked, took = map(float, line.split())
            self._answers.append((asked, math.inf if took < 0 else took))

    def during(self, outcome: Outcome) -> list[float]:
        """The milliseconds of the answers that were awaited at some time of the attack."""
        answers = [
            took for asked, took in self._answers if asked < outcome.ended and asked + took / 1000 > outcome.began
        ]
        return answers or [math.inf]
