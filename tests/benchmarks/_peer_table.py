"""The table of `bench peers`: a column a tool, a row a line, and whether ours is ahead, level or behind on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

OURS = "ours"
Figures = dict[str, Any]


@dataclass(frozen=True)
class Line:
    key: str
    words: str
    better: str = ""
    """lower | higher; "": told, not compared."""
    nothing: float = 0.0
    """At most this much is as good as none."""


LINES = (
    Line("log_call_p50_us", "log call of 20 metrics, p50, µs", "lower"),
    Line("log_call_p99_us", "log call of 20 metrics, p99, µs", "lower"),
    Line("killed_lost", "steps lost by a SIGKILL of the writer", "lower"),
    Line("killed_logged", "… of steps logged"),
    # The longest of thousands of calls: a scheduler's turn on a busy machine is in it, whoever's call it hits.
    Line("dead_server_s", "longest log call after its server died, s", "lower", nothing=0.01),
    Line("dead_server", "… what the training loop gets"),
    Line("dead_server_waiting", "… where a call waits for its answer"),
    Line("visible_p50_ms", "until a client has a point, p50, ms", "lower"),
    Line("visible_max_ms", "until a client has a point, longest, ms", "lower"),
    Line("read_ms", "read of a chart of the long series, ms", "lower"),
    Line("read_points", "… points in it"),
    Line("spikes_kept_of_20", "one-step spikes on it, of 20", "higher"),
)


def verdict(line: Line, own: float, other: float) -> str:
    """What ours is on this line, beside the other."""
    mine, theirs = (0.0 if value <= line.nothing else value for value in (own, other))
    if mine == theirs:
        return "level"
    return "ahead" if (mine < theirs) == (line.better == "lower") else "behind"


def verdicts(table: dict[str, Figures]) -> dict[str, dict[str, str]]:
    """Line -> tool -> what ours is beside it; nothing where ours or the other was not measured."""
    own = table.get(OURS, {})
    others = {name: figures for name, figures in table.items() if name != OURS}
    return {
        line.key: {
            name: verdict(line, own[line.key], figures[line.key])
            for name, figures in others.items()
            if line.key in own and line.key in figures
        }
        for line in LINES
        if line.better
    }


def behind(table: dict[str, Figures]) -> list[str]:
    """`LINE: TOOL` wherever ours is behind."""
    found = verdicts(table).items()
    return [f"{key}: {name}" for key, words in found for name, word in words.items() if word == "behind"]


def as_text(table: dict[str, Figures]) -> str:
    said = verdicts(table)
    rows = [["", *table]]
    for line in LINES:
        words = said.get(line.key, {})
        cells = (
            " ".join(filter(None, (cell(of.get(line.key)), _in_brackets(words.get(name)))))
            for name, of in table.items()
        )
        rows.append([line.words, *cells])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    padded = ["  ".join(each.ljust(width) for each, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*padded, "In brackets: what ours is beside that tool."] if len(table) > 1 else padded)


def _in_brackets(word: str | None) -> str:
    return f"({word})" if word else ""


def cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
    return "–" if value is None else str(value)
