"""Reads outbox.jsonl from a cursor on, and stores the cursor."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.contract.reports.lines import Line, read_line
from workers.contract.wire.names import EventKind, Phase

CHUNK = 1 << 20


@dataclass(frozen=True)
class Cursor:
    """A sink's position in the outbox."""

    seq: int = 0
    """The seq of the last line that the sink has."""
    offset: int = 0
    """The offset of the byte after that line."""
    kept: dict[str, Any] = field(default_factory=dict)
    """State for the sink when it is opened again."""

    @classmethod
    def read(cls, path: Path) -> Cursor:
        """Read the cursor; return the beginning if the file is missing or broken."""
        try:
            value = json.loads(path.read_text())
            return cls(int(value["seq"]), int(value["offset"]), dict(value["kept"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    def write(self, path: Path) -> None:
        replace_file(path, json.dumps({"seq": self.seq, "offset": self.offset, "kept": self.kept}))


def read_after(path: Path, offset: int) -> tuple[list[Line], int]:
    """Read complete lines after a byte offset, at most one chunk; also return the offset after them."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read(CHUNK)
            data += b"" if b"\n" in data or len(data) < CHUNK else file.readline()
    except FileNotFoundError:
        return [], offset
    data = data[: data.rfind(b"\n") + 1]
    lines = [line for raw in data.splitlines() if (line := read_line(raw)) is not None and line.seq]
    return lines, offset + len(data)


def end_in(line: Line) -> str:
    """Return the reason if the line reports the attempt's end, after which no figures follow; else ""."""
    data = line.data() or {}
    ends = line.kind == EventKind.ENDED or (line.kind == EventKind.PHASE and data.get("phase") == Phase.STOPPING)
    return str(data.get("reason") or "") if ends else ""


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text)
    os.replace(part, path)
