"""The messages between the caller and the zygote: fixed binary fields, which can't contain code."""

import struct
from typing import Final, NamedTuple

JOB: Final = 0
"""Descriptors: report, stdout, stderr, channel."""
PROGRAM: Final = 1
"""Descriptors: report, stdout, stderr, channel, stdin."""
TEST: Final = 2
"""Descriptors: report, stdout, stderr, channel, the verifier's channel."""
KILL: Final = 3
"""Ends the evaluation with this number; a verifier exits once its candidate is gone. No descriptors."""

DESCRIPTORS: Final = {JOB: 4, PROGRAM: 5, TEST: 5, KILL: 0}
MAX_DESCRIPTORS: Final = max(DESCRIPTORS.values())
READY: Final = b"ready"

EXITED: Final = 0
DEADLINE: Final = 1
ORDERED: Final = 2
"""Killed on the caller's order, or, for a candidate, because its verifier has ended."""
NEVER_BEGAN: Final = 3
"""The status is an errno."""

_ORDER: Final = struct.Struct("!BQdQQ")
_REPORT: Final = struct.Struct("!Bidd")
ORDER_BYTES: Final = _ORDER.size
REPORT_BYTES: Final = _REPORT.size


class ForkOrder(NamedTuple):
    """An order to the zygote: to fork an evaluation's processes, or to kill them."""

    kind: int
    number: int
    """The number of the evaluation."""
    seconds: float = 0.0
    memory: int = 0
    """Bytes of address space in addition to the zygote's."""
    disk: int = 0
    """Bytes of its tmpfs, if it has one."""

    def pack(self) -> bytes:
        return _ORDER.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> "ForkOrder":
        return cls._make(_ORDER.unpack(data))


class ExitReport(NamedTuple):
    """The exit of a job, a program or a candidate. A verifier has none: its channel closes."""

    end: int
    """EXITED, DEADLINE, ORDERED or NEVER_BEGAN."""
    status: int
    """The status that waitpid returned."""
    seconds: float = 0.0
    processor_seconds: float = 0.0

    def pack(self) -> bytes:
        return _REPORT.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> "ExitReport":
        return cls._make(_REPORT.unpack(data))
