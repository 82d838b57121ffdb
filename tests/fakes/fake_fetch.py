#!/usr/bin/env python3
"""Stands in for `python -m workers.trainer.fetch MODEL --progress FILE`: writes progress, misbehaves when told to.

FAKE_FETCH=name:value,...
  slow:SECONDS (that long from the first byte to the last) · unavailable (exit 6 with a sentence) ·
  crash (a traceback) · full (no space left) · hang (says nothing, for ever) · unsized (the hub tells no total)
Standard library only. It ends by itself after 60 s.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

OPTIONS = dict(part.partition(":")[::2] for part in os.environ.get("FAKE_FETCH", "").split(",") if part)
PROGRESS = Path(sys.argv[sys.argv.index("--progress") + 1])
TOTAL = 3_100_000_000


def main() -> int:
    signal.alarm(60)
    told = {"argv": sys.argv[1:], "environment": dict(os.environ)}
    (PROGRESS.parent / "fetch_environment.json").write_text(json.dumps(told))
    print(f"fetching {sys.argv[1]}", flush=True)
    if "hang" in OPTIONS:
        time.sleep(1000)
    if "unavailable" in OPTIONS:
        print("a warning of some library", file=sys.stderr)
        print("some/model is gated: ask for access on its page, then set the host's token.", file=sys.stderr)
        return 6
    if "full" in OPTIONS:
        print("OSError: [Errno 28] No space left on device", file=sys.stderr)
        return 1
    if "crash" in OPTIONS:
        raise RuntimeError("the hub's library broke")
    seconds = float(OPTIONS.get("slow", "0"))
    for part in range(11 if seconds else 1):
        write(TOTAL * part // 10 if seconds else TOTAL)
        time.sleep(seconds / 10)
    return 0


def write(done: int) -> None:
    total = None if "unsized" in OPTIONS else TOTAL
    line = {"t": time.time(), "done_bytes": done, "total_bytes": total, "files_done": 0, "files": 4}
    with open(PROGRESS, "a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
