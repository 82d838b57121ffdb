"""Programs that jobs run: their output goes to the job's log, and their last lines explain failures."""

from __future__ import annotations

import re
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence

LAST_LINES = 60


def follow(
    command: Sequence[str],
    *,
    percent: re.Pattern[str],
    progress: Callable[[int], None],
    environment: Mapping[str, str] | None = None,
) -> tuple[int, list[str]]:
    """Run a program; return its exit code and last lines. Lines that match `percent` are progress and aren't logged."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None  # noqa: S101  # a pipe was asked for
    last: deque[str] = deque(maxlen=LAST_LINES)
    # Progress bars overwrite themselves with carriage returns, which text mode turns into line breaks.
    for line in (line.strip() for line in process.stdout if line.strip()):
        if match := percent.search(line):
            progress(int(match[1]))
        else:
            print(line, flush=True)
            last.append(line)
    return process.wait(), list(last)


def last_of(lines: Sequence[str]) -> str:
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "it printed nothing")
