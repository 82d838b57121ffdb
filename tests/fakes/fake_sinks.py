"""Stands in for `python -m workers.sinks FOLDER`, with a sink that does as its project says.

takes | refuses | refuses_once | hangs | crashes | crashes_once. What it took is in its folder's taken.jsonl.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workers.contract.run import sinks
from workers.sinks.program import run
from workers.sinks.sink import About, Row, Sink


class FakeSink(Sink):
    def open(self, about: About, kept: dict[str, Any]) -> None:
        self._how, self._folder, self._key = about.project, about.folder, about.key
        (about.folder / "about.json").write_text(json.dumps([about.name, about.link, about.config, about.address]))

    def write(self, rows: Sequence[Row]) -> dict[str, Any]:
        once = self._folder / "once"
        first = not once.exists()
        once.touch()
        if self._how == "hangs":
            time.sleep(600)
        if self._how == "crashes" or (self._how == "crashes_once" and first):
            os._exit(9)
        if self._how == "refuses" or (self._how == "refuses_once" and first):
            raise ConnectionError(f"401 for {self._key}")
        with open(self._folder / "taken.jsonl", "a") as file:
            file.writelines(json.dumps([row.seq, row.step, row.values]) + "\n" for row in rows)
        return {}


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]).resolve(), dict.fromkeys(sinks.TITLES, FakeSink)))
