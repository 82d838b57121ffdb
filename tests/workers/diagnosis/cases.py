"""Logs with their causes: real programs' own in logs/, provoked; and others in documented.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    name: str
    expect: str
    origin: str
    role: str
    text: str


def provoked() -> list[Case]:
    cases = []
    for path in sorted((HERE / "logs").iterdir()):
        head, _, text = path.read_text(encoding="utf-8").partition("\n\n")
        fields = dict(line.removeprefix("## ").partition(": ")[::2] for line in head.splitlines())
        cases.append(Case(path.stem, fields["expect"], fields["origin"], fields.get("role", ""), text))
    return cases


def documented() -> list[Case]:
    rows = tomllib.loads((HERE / "documented.toml").read_text(encoding="utf-8"))["log"]
    return [
        Case(f"{row['expect']}-{number}", row["expect"], "documentation", row.get("role", ""), row["text"])
        for number, row in enumerate(rows)
    ]


CASES = provoked() + documented()

STYLES = {
    "ranks": lambda line: f"[rank3]: {line}",
    "times": lambda line: f"[2026-11-23 10:11:12,345] {line}",
    "vLLM": lambda line: f"(EngineCore_DP0 pid=123) ERROR 11-23 10:11:12 [core.py:712] {line}",
    "colours": lambda line: f"\x1b[1;31m{line}\x1b[0m",
    "compose": lambda line: f"trainer-1  | {line}",
    "progress bar": lambda line: f" 12%|█▏        | 3/25 [00:10<01:00]\r{line}",
}
"""How other programs write the same lines."""


def styled(text: str, style: str) -> str:
    write = STYLES[style]
    return "\n".join(write(line) if line.strip() else line for line in text.splitlines())
