"""What the caller's side and the zygote tell each other: fixed fields only, never anything that code could read.

The zygote packs and unpacks the bare fields: each object that it looks at is a page for it to copy after every fork.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

JOB: Final = 0
"""Descriptors: report, stdout, stderr, channel."""
PROGRAM: Final = 1
"""Descriptors: report, stdout, stderr, channel, stdin."""
TEST: Final = 2
"""Descriptors: report, stdout, stderr, channel, and a new verifier's channel."""
KILL: Final = 3
"""Descriptors: none."""
BEGIN: Final = 4
"""Nothing but what each order may say beside its own. Descriptors: none."""

MOST_DESCRIPTORS: Final = 5
MOST_JOBS: Final = 16
"""Evaluations that one verifier judges, one after the other."""
READY: Final = b"ready"

ITSELF: Final = 0
DEADLINE: Final = 1
ORDERED: Final = 2
"""Killed because the caller said so, or, a candidate, because its verifier had gone."""
NEVER_BEGAN: Final = 3
"""The status is an errno."""

ORDER: Final = struct.Struct("!BQdQQQBQ")
"""The fields of an Order."""
REPORT: Final = struct.Struct("!Bidd")
"""The fields of a Report."""


class Order(NamedTuple):
    what: int
    number: int
    """Of the evaluation, by which it can be killed."""
    seconds: float = 0.0
    memory: int = 0
    """Bytes of address space above what the zygote holds."""
    disk: int = 0
    """Bytes of its tmpfs, where it has one."""
    verifier: int = 0
    """Number of the one that judges it."""
    jobs: int = 0
    """Evaluations that this verifier, a new one, shall judge; 0: it is there."""
    begins: int = 0
    """Number of a TEST, this one or one that has lain ready, whose time begins now; 0: of none."""

    def pack(self) -> bytes:
        return ORDER.pack(*self)


class Report(NamedTuple):
    """Of a process that isn't a verifier."""

    end: int
    """How it came to its end: ITSELF, DEADLINE, ORDERED or NEVER_BEGAN."""
    status: int
    """As waitpid has it."""
    seconds: float
    processor_seconds: float


def report(data: bytes) -> Report:
    return Report._make(REPORT.unpack(data))
