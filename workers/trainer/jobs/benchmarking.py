"""Standard benchmarks of a model by EleutherAI's lm-eval, in an environment of its own: one process per task.

The model answers on loopback, with a key that only this process and lm-eval's have. A failed task is reported with its
reason; the others continue.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import workers
from workers.contract.reports.chat import TRAINED
from workers.contract.run import benchmarks
from workers.contract.run.jobs import LOOPBACK, BenchmarkSettings
from workers.contract.wire.documents import from_dict
from workers.trainer.configuration.spec import SpecError
from workers.trainer.jobs import Job, programs
from workers.trainer.jobs.generation import ModelEngine, Usage
from workers.trainer.jobs.model_endpoint import ModelEndpoint
from workers.trainer.jobs.serving import open_engine

SOURCE_ROOT = Path(workers.__file__).resolve().parents[1]
PYTHON, TASKS = "GRPO_LM_EVAL_PYTHON", "GRPO_LM_EVAL_TASKS"
PERCENT = re.compile(r"Requesting API: +(\d+)%")
BATCH = 8
"""Prompts per request, for engines that take one request at a time."""
LONGEST = 16_384
"""Limit of a prompt's and its answer's tokens, so that a batch fits into a request's body."""
DEFAULT_LENGTH = 2048
"""Context of a model that doesn't state its own; lm-eval's default."""
REQUEST_S = 3600
"""Time-out of a request: a CPU is slow."""
UNFETCHED = re.compile(
    r"Couldn't reach|ConnectionError|ConnectError|LocalEntryNotFoundError|OfflineModeIsEnabled|DatasetNotFoundError"
    r"|Name or service not known|Max retries exceeded"
)
UNKNOWN = re.compile(r"Tasks not found|No tasks (specified|found)")
NOT_INSTALLED = (
    "lm-eval could not be installed on this host ({why}). "
    "Run `python3 -m controlplane.setup.bootstrap.on_demand lm-eval` there, "
    "or name an interpreter that has it in GRPO_LM_EVAL_PYTHON."
)


def run(job: Job) -> None:
    """Raises SpecError if all tasks failed."""
    settings = from_dict(BenchmarkSettings, job.spec.run.job)
    if invalid := [task for task in settings.tasks if not benchmarks.is_name(task)]:
        raise SpecError(f"{invalid[0]!r} is not the name of a benchmark.")
    python = _python(job)
    done: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    job.stage("loading the model")
    with _served(job) as model:
        job.begin(100 * len(settings.tasks))
        for number, task in enumerate(settings.tasks):
            job.stage(f"{task}, {number + 1} of {len(settings.tasks)}")
            results, why = _benchmark(job, python, model, task, settings.limit, done=100 * number)
            done += results
            failed += [{"task": task, "why": why}] if why else []
            job.progress(100 * (number + 1))
            job.result(_summary(done, failed), results=done, failed=failed)
    if not done:
        raise SpecError(" ".join(dict.fromkeys(task["why"] for task in failed)))


def _summary(done: list[dict[str, Any]], failed: list[dict[str, str]]) -> str:
    values = [f"{result['task']} {result['metric']} {result['value']:.3f}" for result in done]
    return " ".join([f"{', '.join(values)}." if values else "", *(task["why"] for task in failed)]).strip()


# --- the environment and the model --------------------------------------------------------------------------------


def _python(job: Job) -> str:
    """Return the interpreter with lm-eval. Builds its environment if this host has none. Raises SpecError."""
    ours = SOURCE_ROOT / benchmarks.ENVIRONMENT / "bin" / "python"
    python = os.environ.get(PYTHON) or str(ours)
    if Path(python) == ours:
        job.stage("installing lm-eval, needed once" if not ours.exists() else "looking at lm-eval")
        # Environments made by uv have no pip: the machine's own Python may have one.
        base = getattr(sys, "_base_executable", sys.executable)
        built = subprocess.run(
            [base, "-m", "controlplane.setup.bootstrap.on_demand", "lm-eval"],
            cwd=SOURCE_ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        print(built.stderr, flush=True)
        if built.returncode:
            raise SpecError(NOT_INSTALLED.format(why=programs.last_of(built.stderr.splitlines())))
    if shutil.which(python) is None:
        raise SpecError(f"{PYTHON} names {python}, and there is no such program on this host.")
    return python


@dataclass(frozen=True)
class _ServedModel:
    arguments: dict[str, Any]
    """Arguments of lm-eval's model type local-completions."""
    batch: int
    key: str

    @property
    def environment(self) -> dict[str, str]:
        """The environment of lm-eval's process, which uses a proxy for the hub only."""
        direct = ",".join(filter(None, (os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), LOOPBACK)))
        return {**os.environ, "OPENAI_API_KEY": self.key, "NO_PROXY": direct, "no_proxy": direct}


@contextlib.contextmanager
def _served(job: Job) -> Iterator[_ServedModel]:
    model = job.spec.run.model
    if not Path(job.base).is_dir():  # fetched from the hub, which is then asked for nothing but a task's data
        model = replace(model, path=_base_folder(job), revision=None)
    job = replace(job, spec=replace(job.spec, run=replace(job.spec.run, model=model)))
    engine = open_engine(job, with_base=False)
    key = secrets.token_urlsafe(32)
    digest = hashlib.sha256(key.encode()).hexdigest()
    endpoint = ModelEndpoint(engine, Usage(), digest=digest)
    with contextlib.closing(engine), contextlib.closing(endpoint):
        address = endpoint.open(LOOPBACK, 0)
        concurrency = {"num_concurrent": engine.at_once} if engine.at_once > 1 else {}
        arguments = {**_arguments(job, engine), **concurrency, "base_url": f"{address}/v1/completions"}
        yield _ServedModel(arguments, 1 if concurrency else BATCH, key)


def _arguments(job: Job, engine: ModelEngine) -> dict[str, Any]:
    from transformers import AutoTokenizer

    folder = str(job.checkpoint) if (job.checkpoint / "tokenizer_config.json").is_file() else job.base
    remote = job.spec.run.model.trust_remote_code
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=remote)
    bos = tokenizer.bos_token_id
    return {
        "model": TRAINED,
        "tokenizer": folder,
        "tokenizer_backend": "huggingface",
        # As the tokenizer itself does; lm-eval would omit it.
        "add_bos_token": bos is not None and tokenizer("1")["input_ids"][0] == bos,
        "max_length": min(engine.context or DEFAULT_LENGTH, LONGEST),
        "timeout": REQUEST_S,
        **({"trust_remote_code": True} if remote else {}),
    }


def _base_folder(job: Job) -> str:
    if Path(job.base).is_dir():
        return job.base
    from huggingface_hub import snapshot_download

    return str(snapshot_download(job.base, revision=job.spec.run.model.revision, local_files_only=True))


# --- one task -----------------------------------------------------------------------------------------------------


def _benchmark(
    job: Job, python: str, model: _ServedModel, task: str, limit: int, *, done: int
) -> tuple[list[dict[str, Any]], str]:
    """Run a task. Return its results, one per metric, or why there are none."""
    out = job.folder / "lm-eval" / task
    out.mkdir(parents=True, exist_ok=True)
    config = {
        "model": "local-completions",
        "model_args": model.arguments,
        "tasks": [task],
        "output_path": str(out),
        "batch_size": model.batch,
        **({"limit": limit} if limit else {}),
        **({"include_path": os.environ[TASKS]} if os.environ.get(TASKS) else {}),
    }
    (out / "config.yaml").write_text(json.dumps(config))  # JSON is YAML, and no path in it needs quoting
    command = [python, "-m", "lm_eval", "run", "--config", str(out / "config.yaml")]
    code, last = programs.follow(
        command,
        percent=PERCENT,
        progress=lambda percent: job.progress(done + percent),
        environment=model.environment,
    )
    if code != 0:
        return [], _why(task, last)
    written = sorted(out.rglob("results_*.json"))
    if not written:
        return [], f"{task}: lm-eval has written no results."
    return _results(task, json.loads(written[-1].read_bytes())), ""


def _why(task: str, last: list[str]) -> str:
    text = "\n".join(last)
    if UNKNOWN.search(text):
        return f"lm-eval has no task {task}."
    if UNFETCHED.search(text):
        return f"The data of {task} can't be fetched from the hub on this host: {programs.last_of(last)}"
    return f"{task} failed: {programs.last_of(last)}"


def _results(task: str, document: dict[str, Any]) -> list[dict[str, Any]]:
    values = document["results"][task]
    count = (document.get("n-samples") or {}).get(task, {}).get("effective") or values.get("sample_len")
    results = []
    for name, value in values.items():
        metric, comma, variant = name.partition(",")
        if not comma or metric.endswith("_stderr") or not isinstance(value, int | float):
            continue
        error = values.get(f"{metric}_stderr,{variant}")
        results.append(
            {
                "task": task,
                "metric": metric if variant == "none" else f"{metric} ({variant})",
                "value": value,
                "stderr": error if isinstance(error, int | float) else None,
                "n": count,
            }
        )
    return results
