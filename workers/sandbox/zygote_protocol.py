"""Messages between the caller and the zygote, with fixed binary fields that can't contain code."""

import struct
from typing import Final, NamedTuple

JOB: Final = 0
"""Order to run a job. Descriptors: report, stdout, stderr, channel."""
PROGRAM: Final = 1
"""Order to run a program. Descriptors: report, stdout, stderr, channel, stdin."""
TEST: Final = 2
"""Order to run tests. Descriptors: report, stdout, stderr, channel, the verifier's channel."""
KILL: Final = 3
"""Order to kill the evaluation with this number; a verifier exits once its candidate has ended. No descriptors."""
READING_JOB: Final = 4
"""Order to run a job that has standard input. Descriptors: report, stdout, stderr, channel, stdin."""

DESCRIPTORS: Final = {JOB: 4, PROGRAM: 5, TEST: 5, KILL: 0, READING_JOB: 5}
MAX_DESCRIPTORS: Final = max(DESCRIPTORS.values())
READY: Final = b"ready"

EXITED: Final = 0
DEADLINE: Final = 1
KILLED_ON_ORDER: Final = 2
"""End of a process that was killed on the caller's order or, for a candidate, because its verifier has ended."""
NEVER_BEGAN: Final = 3
"""End of a process that could not be started; the status is an errno."""

_ORDER: Final = struct.Struct("!BQdQQ")
_REPORT: Final = struct.Struct("!Bidd")
ORDER_BYTES: Final = _ORDER.size
REPORT_BYTES: Final = _REPORT.size


class ForkOrder(NamedTuple):
    """An order to the zygote to fork an evaluation's processes, or to kill them."""

    kind: int
    number: int
    seconds: float = 0.0
    memory: int = 0
    """Limit in bytes on the address space, in addition to that of the zygote."""
    disk: int = 0
    """Size in bytes of the evaluation's tmpfs, if it has one."""

    def pack(self) -> bytes:
        return _ORDER.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> "ForkOrder":
        return cls._make(_ORDER.unpack(data))


class ExitReport(NamedTuple):
    """The exit of a job, a program or a candidate. A verifier has no report; its channel closes."""

    end: int
    status: int
    seconds: float = 0.0
    processor_seconds: float = 0.0

    def pack(self) -> bytes:
        return _REPORT.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> "ExitReport":
        return cls._make(_REPORT.unpack(data))
