"""A trainer that only writes metric lines, at the pace that its run's name says: `every 0.2 s`, or `every 0 s`. A
run with `wide` in its name has more metrics, each of which gets a chart of its own.

Stands in for `python -m workers.trainer FOLDER`, so that what is measured is the way from a line to a browser.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

METRICS = (
    "reward_std", "rewards/format/mean", "rewards/format/std", "frac_reward_zero_std", "entropy", "loss", "grad_norm",
    "learning_rate", "clip_ratio/region_mean", "clip_ratio/low_mean", "clip_ratio/high_mean", "mean_ratio", "step_time",
    "completions/mean_length", "completions/max_length", "completions/min_length", "completions/clipped_ratio",
    "num_tokens", "metric_of_our_own",
)  # fmt: skip
"""And the reward: twenty a step."""
MORE = tuple(f"metric_{number}_of_our_own" for number in range(2, 8))


def main(folder: Path) -> int:
    (folder / "alive").write_text(repr(time.time()))
    run = json.loads((folder / "spec.json").read_text())["run"]
    pause = float(run["name"].split("every ")[1].split(" s")[0])
    steps = int(run["grpo"]["max_steps"])
    names = (*METRICS, *MORE) if "wide" in run["name"] else METRICS
    with (folder / "metrics.jsonl").open("w", buffering=1) as out:
        write(out, "training", 0, {"max_steps": steps, "step": 0})
        begin = time.monotonic()
        for step in range(1, steps + 1):
            # A page that shows a reward shows which step it has.
            values = {"reward": float(step)} | {name: step + n / 7 for n, name in enumerate(names)}
            write(out, "train", step, values)
            # On a beat: the time of writing itself doesn't add up.
            time.sleep(max(0.0, begin + step * pause - time.monotonic()))
            if step % 50 == 0 and (folder / "STOP").exists():
                break
        write(out, "trained", step, {"how": "stopped" if step < steps else "completed"})
    return 0


def write(out: TextIO, kind: str, step: int, data: Mapping[str, object]) -> None:
    line = {"t": time.time(), "kind": kind, "step": step, "data": data}
    print(json.dumps(line, separators=(",", ":")), file=out)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
