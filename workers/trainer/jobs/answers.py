"""An answer as lines of metrics.jsonl: its text in pieces, gathered for a moment, and its end."""

from __future__ import annotations

import time

from workers.contract.reports.chat import Finish
from workers.contract.wire.names import EventKind
from workers.trainer.jobs.asking import Answered
from workers.trainer.recording.metrics import LineFile

GATHER_S = 0.1
LONGEST_PIECE = 2_000
"""Characters: six bytes each in JSON at the most, and a line has its limit."""


class AnswerLines:
    """One answer. Used by one thread."""

    def __init__(self, lines: LineFile, *, turn: int, model: str) -> None:
        self._lines = lines
        self._turn, self._model = turn, model
        self._text = ""
        self._pieces = 0
        self._began = time.monotonic()
        self._told = float("-inf")

    def add(self, text: str) -> None:
        self._text += text
        if self._text and time.monotonic() - self._told >= GATHER_S:
            self._flush()

    def end(self, why: Finish, done: Answered | None = None, *, error: str = "") -> None:
        self._flush()
        end = {"why": why, "tokens": done.tokens if done else 0, "prompt_tokens": done.prompt_tokens if done else 0}
        self._write("", {**end, "seconds": round(time.monotonic() - self._began, 3), "error": error[:1000]})

    def _flush(self) -> None:
        while self._text:
            piece, self._text = self._text[:LONGEST_PIECE], self._text[LONGEST_PIECE:]
            self._write(piece, {})
        self._told = time.monotonic()

    def _write(self, text: str, end: dict[str, object]) -> None:
        self._pieces += 1
        data = {"turn": self._turn, "model": self._model, "piece": self._pieces, "text": text, "end": end}
        self._lines.event(EventKind.ANSWER, data)
