"""Determines the outcome of an evaluation from its exit report and its process's own messages."""

import os
import signal
from dataclasses import dataclass
from typing import Any

from workers.sandbox.outcomes import Kind, Limits, Outcome
from workers.sandbox.zygote_protocol import DEADLINE, NEVER_BEGAN, ORDERED, ExitReport

GONE = "The sandbox's own process ended; it was restarted."
_ANSWERED = (Kind.OK, Kind.ERROR, Kind.MEMORY)


@dataclass(frozen=True)
class EvaluationExit:
    report: ExitReport | None
    """None: the zygote ended first."""
    answer: Any
    """The last message on its channel. The process may lie, but only about itself."""
    stopped: tuple[Kind, str] | None
    """Why the caller ended the evaluation, if it did."""
    limits: Limits
    is_program: bool

    def outcome(self, stdout: bytes | bytearray, stderr: bytes | bytearray) -> Outcome:
        """Return the outcome, with the process's output."""
        report = self.report
        kind, message = self._kind_and_message()
        answer = self.answer if kind in _ANSWERED and self.stopped is None else None
        answer = answer if isinstance(answer, dict) else {}
        value = report.status >> 8 if self.is_program and report and kind is Kind.OK else None
        return Outcome(
            kind=kind,
            value=answer.get("value") if kind is Kind.OK and answer else value,
            stdout=_text(stdout),
            stderr=_text(stderr),
            seconds=report.seconds if report else 0.0,
            message=message,
            traceback=_string(answer.get("traceback")),
            trouble=self._is_trouble(),
        )

    def _is_trouble(self) -> bool:
        if self.stopped is not None:
            return self.stopped[1] is GONE
        return self.report is None or self.report.end == NEVER_BEGAN

    def _kind_and_message(self) -> tuple[Kind, str]:
        report = self.report
        if self.stopped is not None:
            return self.stopped
        if report is None:
            return Kind.KILLED, GONE
        if report.end == NEVER_BEGAN:
            return Kind.KILLED, f"No process could be started: {os.strerror(report.status)}"
        out_of_processor_time = report.processor_seconds > self.limits.seconds
        by_signal = os.WTERMSIG(report.status) if os.WIFSIGNALED(report.status) else 0
        if report.end == DEADLINE or (by_signal == signal.SIGKILL and out_of_processor_time):
            return Kind.TIMEOUT, f"It took longer than {self.limits.seconds:g} s."
        answered = self._answered()
        if answered is not None and (not by_signal or report.end == ORDERED):
            return answered
        if by_signal:
            return Kind.KILLED, f"It was killed by {signal.Signals(by_signal).name}."
        if self.is_program:
            return Kind.OK, ""
        return Kind.ERROR, f"It ended early with exit code {os.waitstatus_to_exitcode(report.status)}."

    def _answered(self) -> tuple[Kind, str] | None:
        answer = self.answer
        if not isinstance(answer, dict) or answer.get("kind") not in (*_ANSWERED, Kind.KILLED):
            return None
        return Kind(answer["kind"]), _string(answer.get("message"))


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _text(data: bytes | bytearray) -> str:
    return data.decode("utf-8", "replace")
