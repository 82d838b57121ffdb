"""Reading outbox.jsonl from a cursor on, and keeping the cursor."""

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
    seq: int = 0
    """The last line that the sink has."""
    offset: int = 0
    """Of the byte after it."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What the sink wants to know when it is opened again."""

    @classmethod
    def read(cls, path: Path) -> Cursor:
        """Without a file, or with a broken one, the beginning."""
        try:
            value = json.loads(path.read_text())
            return cls(int(value["seq"]), int(value["offset"]), dict(value["kept"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    def write(self, path: Path) -> None:
        wrote_whole(path, json.dumps({"seq": self.seq, "offset": self.offset, "kept": self.kept}))


def read_after(path: Path, offset: int) -> tuple[list[Line], int]:
    """The complete lines after a byte offset, one chunk at most, and the offset after them."""
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
    """The reason, if the line says that the attempt ends, else "": figures come no more."""
    data = line.data() or {}
    ends = line.kind == EventKind.ENDED or (line.kind == EventKind.PHASE and data.get("phase") == Phase.STOPPING)
    return str(data.get("reason") or "") if ends else ""


def wrote_whole(path: Path, text: str) -> None:
    """Replace a file at once."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text)
    os.replace(part, path)
