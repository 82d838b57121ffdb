"""A trainer that only writes metric lines, at the pace that its run's name says: `every 0.2 s`, or `every 0 s`.

Stands in for `python -m workers.trainer FOLDER`, so that what is measured is the way from a line to a browser.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

METRICS = 20


def main(folder: Path) -> int:
    (folder / "alive").write_text(repr(time.time()))
    run = json.loads((folder / "spec.json").read_text())["run"]
    pause = float(run["name"].split("every ")[1].split(" s")[0])
    steps = int(run["grpo"]["max_steps"])
    values = {f"metric_{number}": number / 7 for number in range(METRICS)}
    with (folder / "metrics.jsonl").open("w", buffering=1) as out:
        write(out, event="train_begin", step=0, max_steps=steps)
        begin = time.monotonic()
        for step in range(1, steps + 1):
            write(out, event="log", step=step, values=values, dropped=[])
            # On a beat: the time of writing itself doesn't add up.
            time.sleep(max(0.0, begin + step * pause - time.monotonic()))
            if step % 50 == 0 and (folder / "STOP").exists():
                break
        write(out, event="train_end", step=step, stopped=step < steps)
    return 0


def write(out: object, **line: object) -> None:
    print(json.dumps({"t": time.time(), **line}), file=out)  # type: ignore[call-overload]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
