"""A run that fails, its diagnosis, and its clone with the fix, which trains: through the product's pages.

    python -m tests.gpu.recover --out DIR               one GPU: a batch whose activations don't fit
    python -m tests.gpu.recover --out DIR --rehearsal   the CPU: a LoRA whose target modules the model lacks

Writes DIR/recovery.json. The model's size is not known at the first launch, so that preflight can't refuse it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runs.engine.states import FINAL
from tests.gpu.installation import Site, read_gpus
from tests.gpu.launches import Launch
from tests.gpu.pages import form_with, send, text_of
from tests.gpu.prove import machine, make_models, trainer_python, versions, wait_for_models
from tests.gpu.setups import COLOCATE, CPU
from tests.gpu.units import Setup

STEPS = 3
LIMIT_S = 270.0


@dataclass(frozen=True)
class Case:
    setup: Setup
    wrong: dict[str, Any] = field(default_factory=dict)
    """Fields of the New run form that make the first launch fail."""


TOO_LARGE = Case(
    COLOCATE,
    {"per_device_train_batch_size": 640, "num_generations": 8, "max_completion_length": 768},
)
WRONG_MODULES = Case(CPU, {"use_lora": True, "lora_targets": "no_such_proj"})


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.recover", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rehearsal", action="store_true", help="on the CPU")
    work = Path(tempfile.gettempdir()) / "gpu-recover"
    parser.add_argument("--model-dir", type=Path, default=work / "models")
    options = parser.parse_args(argv)
    case = WRONG_MODULES if options.rehearsal else TOO_LARGE
    options.out.mkdir(parents=True, exist_ok=True)
    python = trainer_python()
    making = make_models(options.model_dir, python, [case.setup])
    site = Site(
        models=options.model_dir,
        cache=work / "cache",
        trainer_python=python,
        baseline=read_gpus(),
        rehearsal=options.rehearsal,
    )
    try:
        site.open()
        wait_for_models(making)
        answer = recover(site, case)
        answer |= {"machine": machine(), "versions": versions(site.host())}
    finally:
        site.close()
    text = json.dumps(answer, indent=1, ensure_ascii=False)
    (options.out / "recovery.json").write_text(text + "\n", encoding="utf-8")
    print(text, flush=True)
    return 0 if answer["steps_of_the_clone"] >= STEPS and answer["free"] else 1


def recover(site: Site, case: Case) -> dict[str, Any]:
    """What was seen: the diagnosis, the fix's changes, the clone's steps, and its receipt."""
    person, setup = site.person, case.setup
    profile = person.make_profile(site.shipped(setup.slug), f"recover {setup.name}", setup.profile)
    first = Launch(setup, site, 1, STEPS, LIMIT_S)
    first.send(profile, case.wrong)
    _until(lambda: site.state(first.run).status in FINAL, f"the end of {first.run}")
    if site.state(first.run).status != "failed":
        raise RuntimeError(f"{first.run} was to fail, and ended as {site.state(first.run)}")
    page = person.http.get(f"/runs/{first.run}/").text
    fixes = re.findall(rf"/runs/{first.run}/clone/\?fix=(\w+)", page)
    if not fixes:
        raise RuntimeError(f"no clone with fix is offered: {text_of(page)[:3000]}")
    person.ask_about(str(site.models / setup.shape))
    form = form_with(person.http.get(f"/runs/{first.run}/clone/?fix={fixes[0]}").text, "model", "profile")
    answer = send(person.http, "/runs/new/", form, {})
    run = answer.url.path.strip("/").rpartition("/")[2]
    if run == "new":
        raise RuntimeError(f"the clone was refused: {text_of(answer.text)[-2000:]}")
    _until(lambda: _steps(site, run) >= STEPS or site.state(run).status in FINAL, f"the steps of {run}")
    trained = _steps(site, run)
    person.stop(run)
    _until(lambda: site.state(run).status in FINAL, f"the end of {run}")
    receipt = site.state(run).receipt or {}
    return {
        "failed_as": site.state(first.run).reason,
        "detail": site.state(first.run).detail,
        "diagnosed": fixes,
        "wrong": case.wrong,
        "changes": _changes(first.run, run),
        "steps_of_the_clone": trained,
        "free": bool(receipt.get("free")),
        "step_seconds": [
            round(row.values["step_time"], 2) for row in site.rows(run, "train") if "step_time" in row.values
        ],
    }


def _steps(site: Site, run: str) -> int:
    return len(site.rows(run, "train"))


def _changes(first: str, clone: str) -> dict[str, list[Any]]:
    """The settings that differ: [the failed run's, the clone's]."""
    from runs.engine.models import Run
    from runs.insight.comparing import comparison

    runs = [Run.objects.get(pk=first), Run.objects.get(pk=clone)]
    unlike, _ = comparison.differences(runs)
    return {one.name: [value.text for value in one.values] for one in unlike}


def _until(there: Any, what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not there():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {LIMIT_S:.0f} s")
        time.sleep(0.3)


if __name__ == "__main__":
    sys.exit(main())
