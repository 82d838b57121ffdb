"""Episodes of two turns through the product, on GPUs: a tool in the sandbox, credit per turn, and a kill in mid-run.

    python -m tests.gpu.episodes --out DIR               colocate and a LoRA server on one GPU; with two, NCCL as well
    python -m tests.gpu.episodes --out DIR --rehearsal   the CPU, where the trainer generates

Writes DIR/episodes.json. The model is the small one of `bench tools`: it must call `find` with a letter and then say
the digit that it was told.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

from tests.benchmarks._lookup import DIGITS, LETTERS, PROMPT
from tests.gpu.figures import Row
from tests.gpu.installation import Site, busy, read_gpus, tail
from tests.gpu.sampling import FINAL, prove, wait
from tests.gpu.setups import Setup

STEPS, REHEARSED = 80, 6
SHOWN = 5
"""Steps at the beginning and at the end whose mean is told."""
LIMIT_S = 240.0
BATCH = {
    "per_device_train_batch_size": 64,
    "gradient_accumulation_steps": 1,
    "num_generations": 8,
    "num_iterations": 1,
    "max_completion_length": 48,
}
MODES: dict[str, tuple[str, int, dict[str, Any], bool]] = {
    "colocate": ("one-gpu-colocate", 1, {"colocate_memory_utilization": 0.2, "colocate_max_model_len": 512}, False),
    "server-lora": ("one-gpu-shared-server", 1, {"server_max_model_len": 512}, True),
    "server-nccl": ("dual-gpu", 2, {"server_max_model_len": 512}, False),
}
"""Profile, GPUs, fields of its form, and whether an adapter is trained."""
TOLD = dict(zip(LETTERS, random.Random(7).choices(DIGITS, k=len(LETTERS)), strict=True))
TOOL = f'''def find(letter: str) -> str:
    """Look a letter up.

    Args:
        letter: one capital letter
    """
    return {TOLD!r}[letter]
'''
MAKE = """
from controlplane.accounts.models import User
from controlplane.environments import saving as environments
from controlplane.rewards import saving as rewards
owner = User.objects.get(username="admin")
parts = [{"name": "find", "function": "python_tool", "params": {"source": source}}]
environment = environments.make("Lookup", environments.Composition(parts, {"turns": 2}), owner=owner)
components = [
    {"name": "right", "function": "exact_match", "weight": 1.0, "params": {"source": "answer tag"}},
    {"name": "found", "function": "answer_in_results", "weight": 0.5, "params": {}, "per_turn": True},
]
config = rewards.make("Lookup", rewards.Composition(components), owner=owner)
result = [str(environment.pk), str(config.pk)]
"""


def main(argv: list[str] | None = None) -> int:
    return prove(argv, "episodes", __doc__, measure)


def measure(site: Site, setup: Setup) -> dict[str, Any]:
    model = str(site.models / "lookup")
    subprocess.run([site.trainer_python, "-m", "tests.benchmarks._lookup", "--model", model], check=True)
    environment, rewards = site.stack.django(MAKE, source=TOOL)
    lines = [{"question": PROMPT.format(letter=letter), "answer": digit} for letter, digit in TOLD.items()]
    chosen = {
        "model": model,
        "dataset_version": site.person.upload("lookup", lines=40 * lines),
        "reward_version": rewards,
        "environment": environment,
        "learning_rate": "2e-4",
        "max_steps": 100_000,
        "save_steps": 100_000,
        **BATCH,
    }
    if setup.gpus == 0:
        return {"modes": {"rehearsal": _mode(site, chosen, "cpu", {}, lora=False, steps=REHEARSED)}}
    found = {}
    for name, (slug, gpus, changes, lora) in MODES.items():
        if gpus <= len(read_gpus()):
            try:
                found[name] = _mode(site, chosen, slug, changes, lora=lora, steps=STEPS)
            except (RuntimeError, TimeoutError) as error:
                found[name] = {"failed": str(error)}
                print(f"{name}: {error}", flush=True)
    return {"modes": found}


def _mode(
    site: Site, chosen: dict[str, Any], slug: str, changes: dict[str, Any], *, lora: bool, steps: int
) -> dict[str, Any]:
    """Train for so many steps, then stop at once."""
    profile = site.person.make_profile(site.shipped(slug), f"episodes {slug}", {**changes, **BATCH})
    own = {"name": f"episodes {slug}", "profile": profile, "use_lora": lora}
    if lora:
        own["learning_rate"] = "2e-3"
    begun = time.time()
    run, _, _ = site.person.launch({**site.launch_values(profile), **chosen, **own})
    deadline = time.monotonic() + LIMIT_S
    while len(rows := _steps(site, run)) < steps:
        state = site.state(run)
        if state.status in FINAL or time.monotonic() > deadline:
            site.person.stop(run)
            wait(site, run)
            log = tail(site.folder(run) / "logs" / "trainer.log", 40)
            raise RuntimeError(f"{len(rows)} of {steps} steps; {state.status}, {state.reason}: {state.detail}\n{log}")
        time.sleep(0.2)
    site.person.stop(run)
    state = wait(site, run)
    return {
        **_figures(rows),
        "to_first_step_s": round(rows[0].t - begun, 1),
        "free": bool((state.receipt or {}).get("free")),
        "receipt": state.receipt,
        "busy_afterwards": busy(site.baseline),
    }


def _steps(site: Site, run: str) -> list[Row]:
    return [row for row in site.rows(run, "train") if "tools/call_frequency" in row.values]


def _figures(rows: list[Row]) -> dict[str, Any]:
    def mean(metric: str, some: list[Row]) -> float | None:
        values = [row.values[metric] for row in some if metric in row.values]
        return round(statistics.fmean(values), 4) if values else None

    first, last = rows[:SHOWN], rows[-SHOWN:]
    at = [row.t for row in rows]
    return {
        "steps": len(rows),
        "step_s": round(statistics.median(b - a for a, b in pairwise(at)), 3),
        "right_before": mean("rewards/right/mean", first),
        "right_after": mean("rewards/right/mean", last),
        "turn_1_reward_before": mean("turns/1/reward", first),
        "turn_1_reward_after": mean("turns/1/reward", last),
        "turns_before": mean("episodes/turns/mean", first),
        "turns_after": mean("episodes/turns/mean", last),
        "calls_an_episode": mean("tools/call_frequency", last),
        "call_p95_s": mean("tools/find/p95_s", last),
        "share_by_tools": mean("episodes/tool_share", last),
        "logp_difference": mean("sampling/sampling_logp_difference/mean", rows),
    }


if __name__ == "__main__":
    sys.exit(main())
