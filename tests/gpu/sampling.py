"""Completions per second of an evaluation through the product, and of bare vLLM with the same prompts on the same GPU.

    python -m tests.gpu.sampling --out DIR               one GPU, in alternating pairs
    python -m tests.gpu.sampling --out DIR --rehearsal   the CPU, where transformers stands for vLLM on both sides

Writes DIR/sampling.json. The product's rate is of the whole evaluation, sampling and scoring; bare vLLM's is of
`generate` alone. Both have loaded their model before.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.gpu.installation import Site, read_gpus, tail
from tests.gpu.pages import form_with, send, text_of
from tests.gpu.prove import machine, make_models, trainer_python, versions, wait_for_models
from tests.gpu.setups import COLOCATE, CPU
from tests.gpu.units import Setup

ROWS, GENERATIONS, PAIRS = 256, 4, 3
TOKENS = 512
LIMIT_S = 240.0
FINAL = ("succeeded", "failed", "stopped")


def main(argv: list[str] | None = None) -> int:
    return prove(argv, "sampling", __doc__, measure)


def prove(argv: list[str] | None, name: str, about: str, measure: Callable[[Site, Setup], dict[str, Any]]) -> int:
    """Measure one installation with one model, on one GPU or in a rehearsal; writes DIR/<name>.json."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.gpu.{name}", description=about.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rehearsal", action="store_true", help="on the CPU")
    options = parser.parse_args(argv)
    work = Path(tempfile.gettempdir()) / f"gpu-{name}"
    setup = CPU if options.rehearsal else COLOCATE
    options.out.mkdir(parents=True, exist_ok=True)
    python = trainer_python()
    making = make_models(work / "models", python, [setup])
    site = Site(
        models=work / "models",
        cache=work / "cache",
        trainer_python=python,
        baseline=read_gpus(),
        rehearsal=options.rehearsal,
    )
    try:
        site.open()
        wait_for_models(making)
        answer = measure(site, setup)
        answer |= {"machine": machine(), "versions": versions(site.host())}
    finally:
        site.close()
    text = json.dumps(answer, indent=1, ensure_ascii=False)
    (options.out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(text, flush=True)
    return 0


def measure(site: Site, setup: Setup) -> dict[str, Any]:
    rehearsal = setup.gpus == 0
    person = site.person
    rows, generations, pairs = (12, 2, 1) if rehearsal else (ROWS, GENERATIONS, PAIRS)
    dataset = person.upload("halves", 2 * rows, share="0.5")
    profile = person.make_profile(site.shipped(setup.slug), f"sampling {setup.name}", setup.profile)
    chosen = {
        **site.launch_values(profile),
        "name": setup.name,
        "model": str(site.models / setup.shape),
        "dataset_version": dataset,
        "reward_version": site.rewards,
        "profile": profile,
        "use_lora": True,
        "max_completion_length": TOKENS,
        "max_steps": 1,
    }
    trained, _, _ = person.launch(chosen)
    end(site, trained)
    product: list[float] = []
    alone: list[float] = []
    for number in range(pairs):
        # Another number of prompts each time: the same evaluation is not done twice.
        evaluation = _evaluate(site, trained, rows - number, generations)
        seconds = next(
            row.values["eval_runtime"] for row in site.rows(evaluation, "train") if "eval_runtime" in row.values
        )
        product.append((rows - number) * generations / seconds)
        alone.append(_bare(site, evaluation, rehearsal=rehearsal))
    return {
        "completions_per_s_product": [round(rate, 2) for rate in product],
        "completions_per_s_bare": [round(rate, 2) for rate in alone],
        "ratio": round(statistics.median(product) / statistics.median(alone), 4),
        "prompts": rows,
        "completions_of_each": generations,
        "tokens_of_each_at_most": TOKENS,
        "model": setup.shape,
    }


def _evaluate(site: Site, run: str, prompts: int, generations: int) -> str:
    """The evaluation of the model before training; that of the checkpoint is stopped, as it would measure the same."""
    page = f"/runs/{run}/evaluations/"
    form = form_with(site.person.http.get(page).text, "prompts", "generations")
    before = set(_evaluations(site, run))
    answer = send(site.person.http, page, form, {"prompts": prompts, "generations": generations})
    started = [one for one in _evaluations(site, run) if one not in before]
    if not started:
        raise RuntimeError(f"nothing was started: {text_of(answer.text)[:1000]}")
    base, *others = started
    for other in others:
        site.person.stop(other)
        wait(site, other)
    end(site, base)
    return base


def _evaluations(site: Site, run: str) -> list[str]:
    from runs.engine.models import Run

    return list(Run.objects.get(pk=run).jobs.order_by("created_at").values_list("pk", flat=True))


def end(site: Site, run: str) -> None:
    state = wait(site, run)
    if state.status != "succeeded":
        log = tail(site.folder(run) / "logs" / "trainer.log", 40)
        raise RuntimeError(f"{run} ended as {state.status}, {state.reason}: {state.detail}\n{log}")


def wait(site: Site, run: str) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while (state := site.state(run)).status not in FINAL:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{run} is {state.status} after {LIMIT_S:.0f} s: {state.phase} {state.waits_for}")
        time.sleep(0.3)
    return state


def _bare(site: Site, evaluation: str, *, rehearsal: bool) -> float:
    """Completions per second, by a process of its own."""
    argv = [site.trainer_python, "-m", "tests.gpu.bare_vllm", str(site.folder(evaluation))]
    paths = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
    environment = {**os.environ, **site.environment, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*argv, *(["--rehearsal"] if rehearsal else [])], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    found = re.search(r"^completions per second: (\S+)$", done.stdout, re.MULTILINE)
    if not found:
        raise RuntimeError(f"bare vLLM failed ({done.returncode}):\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return float(found[1])


if __name__ == "__main__":
    sys.exit(main())
