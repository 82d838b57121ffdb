"""Episodes of two turns through the product, on GPUs: a tool in the sandbox, credit per turn, and a kill in mid-run.

    python -m tests.gpu.episodes --out DIR --only NAME,NAME   of colocate, server-lora, agents, atropos, usual-size; on
                                                              two GPUs: server-nccl, zero3
    python -m tests.gpu.episodes --out DIR --rehearsal        the CPU, where the trainer generates

Writes DIR/episodes.json. The model is the small one of `bench tools`: it must call `find` with a letter and then say
the digit that it was told. For `atropos`, GRPO_ATROPOS_PYTHON names an interpreter with atroposlib: it runs the run-api
and the small environment of tests/trainer, whose score is how many different tokens an answer has. `usual-size` trains
a LoRA of a model of 1.5B parameters that learns the same on the spot. With `zero3` two ranks share each weight, so that
they must generate equally often, however their episodes end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import httpx

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.benchmarks._lookup import DIGITS, LETTERS, PROMPT
from tests.gpu.figures import Row, used_peaks
from tests.gpu.installation import Site, busy, read_gpus, tail
from tests.gpu.sampling import FINAL, prove, wait
from tests.gpu.units import Setup
from workers.contract.run import gateway

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


@dataclass(frozen=True)
class Mode:
    slug: str
    """The shipped profile."""
    gpus: int = 1
    profile: dict[str, Any] = field(default_factory=dict)
    lora: bool = False
    drives: str = ""
    """Whose program drives the episodes: `agents`, by tests.gpu.finders, or `atropos`, by its environment; "": the
    run's own."""
    model: str = "lookup"
    steps: int = 0
    """0: as many as the small model needs to learn."""


COLOCATED = {"colocate_memory_utilization": 0.2, "colocate_max_model_len": 512}
SHORT = {"server_max_model_len": 512}
MODES = {
    "colocate": Mode("one-gpu-colocate", profile=COLOCATED),
    "server-lora": Mode("one-gpu-shared-server", profile=SHORT, lora=True),
    "agents": Mode("one-gpu-shared-server", profile=SHORT, lora=True, drives=gateway.AGENTS),
    "atropos": Mode("one-gpu-shared-server", profile=SHORT, lora=True, drives=gateway.ATROPOS),
    "server-nccl": Mode("dual-gpu", 2, profile=SHORT),
    "usual-size": Mode(
        "one-gpu-colocate",
        profile={**COLOCATED, "colocate_memory_utilization": 0.3},
        lora=True,
        model="lookup-1.5b",
        steps=3,
    ),
    "zero3": Mode(
        "one-gpu-colocate", 2, profile={**COLOCATED, "strategy": "zero3", "trainer_gpus": 2, "processes": 2}, steps=5
    ),
}
REHEARSAL = {"tools": Mode("cpu", 0), **{kind: Mode("cpu", 0, drives=kind) for kind in gateway.KINDS}}
ATROPOS_PYTHON = os.environ.get(gateway.PYTHON) or str(ROOT / gateway.ENVIRONMENT / "bin" / "python")
ATROPOS_TOKENS, ATROPOS_LOG = 256, "atropos_environment.log"
TOLD = dict(zip(LETTERS, random.Random(7).choices(DIGITS, k=len(LETTERS)), strict=True))
TOOL = f'''def find(letter: str) -> str:
    """Look a letter up.

    Args:
        letter: one capital letter
    """
    return {TOLD!r}[letter]
'''
MAKE = """
from controlplane.platform.accounts.models import User
from controlplane.catalogue.environments import saving as environments
from controlplane.catalogue.rewards import saving as rewards
owner = User.objects.get(username="admin")
parts = [{"name": "find", "function": "python_tool", "params": {"source": source}}]
environment = environments.make("Lookup", environments.EnvironmentComposition(parts, {"turns": 2}), owner=owner)
components = [
    {"name": "right", "function": "exact_match", "weight": 1.0, "params": {"source": "answer tag"}},
    {"name": "found", "function": "answer_in_results", "weight": 0.5, "params": {}, "per_turn": True},
]
config = rewards.make("Lookup", rewards.RewardComposition(components), owner=owner)
given = {"name": "right", "function": "environment_reward", "weight": 1.0, "params": {}}
told = rewards.make("Told by agents", rewards.RewardComposition([given]), owner=owner)
result = [str(environment.pk), str(config.pk), str(told.pk)]
"""
ENDPOINT = """
from controlplane.platform.http import tokens
from runs.engine.gateway import endpoint
from runs.engine.models import Run
found = endpoint.of(Run.objects.get(pk=run))
result = [found.url, found.api, tokens.gateway_key(run)]
"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--only", default=",".join(MODES))
    options, others = parser.parse_known_args(argv)
    return prove(others, "episodes", __doc__, partial(measure, only=options.only.split(",")))


def measure(site: Site, setup: Setup, *, only: Sequence[str]) -> dict[str, Any]:
    environment, rewards, told = site.stack.django(MAKE, source=TOOL)
    lines = [{"question": PROMPT.format(letter=letter), "answer": digit} for letter, digit in TOLD.items()]
    chosen = {
        "dataset_version": site.person.upload("lookup", lines=40 * lines),
        "learning_rate": "2e-4",
        "max_steps": 100_000,
        "save_steps": 100_000,
        **BATCH,
    }
    driven = {
        "": {"environment": environment, "reward_version": rewards},
        gateway.AGENTS: {"driven_by": gateway.AGENTS, "reward_version": told},
        gateway.ATROPOS: {
            "driven_by": gateway.ATROPOS,
            "reward_version": told,
            "max_token_len": ATROPOS_TOKENS,
        },
    }
    gpus = len(read_gpus())
    modes = {name: MODES[name] for name in only if MODES[name].gpus <= gpus} if gpus else _rehearsed(only)
    for model in {mode.model for mode in modes.values()}:
        made = [str(site.models / model), *model.split("-")[1:]]
        subprocess.run([site.trainer_python, "-m", "tests.benchmarks._lookup", "--model", *made], check=True)
    found: dict[str, Any] = {}
    for name, mode in modes.items():
        try:
            steps = mode.steps or STEPS if gpus else REHEARSED
            found[name] = _trained(site, {**chosen, **driven[mode.drives]}, name, mode, steps)
        except (RuntimeError, TimeoutError) as error:
            found[name] = {"failed": str(error)}
            print(f"{name}: {error}", flush=True)
    return {"modes": found}


def _rehearsed(only: Sequence[str]) -> dict[str, Mode]:
    chosen = REHEARSAL if set(only) == set(MODES) else {name: REHEARSAL[name] for name in only}
    return {name: mode for name, mode in chosen.items() if mode.drives != gateway.ATROPOS or _has_atropos()}


def _has_atropos() -> bool:
    return shutil.which(ATROPOS_PYTHON) is not None


def _trained(site: Site, chosen: dict[str, Any], name: str, mode: Mode, steps: int) -> dict[str, Any]:
    """Train for so many steps, then stop at once."""
    profile = site.person.make_profile(site.shipped(mode.slug), f"episodes {name}", {**mode.profile, **BATCH})
    own: dict[str, Any] = {
        "name": f"episodes {name}",
        "profile": profile,
        "use_lora": mode.lora,
        "model": str(site.models / mode.model),
    }
    if mode.lora:
        own["learning_rate"] = "2e-3"
    begun = time.time()
    run, _, _ = site.person.launch({**site.launch_values(profile), **chosen, **own})
    driver: subprocess.Popen[bytes] | None = None
    deadline = time.monotonic() + LIMIT_S
    try:
        while len(rows := _steps(site, run)) < steps:
            state = site.state(run)
            if state.status in FINAL or time.monotonic() > deadline:
                site.person.stop(run)
                wait(site, run)
                log = tail(site.folder(run) / "logs" / "trainer.log", 40) + tail(site.models.parent / ATROPOS_LOG, 20)
                raise RuntimeError(
                    f"{len(rows)} of {steps} steps; {state.status}, {state.reason}: {state.detail}\n{log}"
                )
            if mode.drives and driver is None and state.status == "running":
                driver = _driver(site, run, mode.drives, own["model"])
            time.sleep(0.2)
        site.person.stop(run)
        state = wait(site, run)
    finally:
        if driver is not None:
            driver.kill()
            driver.wait()
    return {
        **_figures(rows),
        "to_first_step_s": round(rows[0].t - begun, 1),
        "free": bool((state.receipt or {}).get("free")),
        "receipt": state.receipt,
        "peak_gib": used_peaks(site.rows(run, "system"), state.receipt, sorted(site.baseline)),
        "busy_afterwards": busy(site.baseline),
    }


def _driver(site: Site, run: str, kind: str, model: str) -> subprocess.Popen[bytes] | None:
    """The agents, or the environment, once the endpoint listens; None before."""
    url, api, key = site.stack.django(ENDPOINT, run=run)
    try:
        httpx.get(f"{url}/health", timeout=2, trust_env=False)
    except httpx.HTTPError:
        return None
    if kind == gateway.AGENTS:
        command = [sys.executable, "-m", "tests.gpu.finders", url, json.dumps(TOLD)]
        return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "KEY": key})
    options = {
        "env.group_size": BATCH["num_generations"],
        "env.rollout_server_url": api,
        "env.tokenizer_name": model,
        "env.use_wandb": False,
        "env.wandb_name": "counting",
        "env.max_token_length": ATROPOS_TOKENS,
        "openai.base_url": f"{url}/v1",
        "openai.api_key": key,
        "openai.model_name": model,
        "openai.server_type": "vllm",
    }
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    offline = {"HF_HUB_OFFLINE": "1", "ATROPOS_ALLOW_DUMMY_MANAGED_SERVER": "1"}
    with (site.models.parent / ATROPOS_LOG).open("w") as log:
        return subprocess.Popen(
            [ATROPOS_PYTHON, str(ROOT / "tests" / "trainer" / "atropos_environment.py"), "serve", *flags],
            cwd=site.models.parent,  # it writes files
            env={**os.environ, **offline},
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _steps(site: Site, run: str) -> list[Row]:
    return [row for row in site.rows(run, "train") if "reward" in row.values]


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
        "requests_a_step": mean(gateway.REQUESTS, last),
        "latency_p95_s": mean(gateway.LATENCY_P95, last),
        "waited_a_step_s": mean(gateway.WAITING, last),
        "staleness": mean(gateway.STALENESS, last),
        "staleness_unknown": mean(gateway.UNKNOWN, last),
        "logp_difference": mean("sampling/sampling_logp_difference/mean", rows),
    }


if __name__ == "__main__":
    sys.exit(main())
