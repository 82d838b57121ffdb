"""Standard benchmarks of a model by EleutherAI's lm-eval, in a separate environment: one process per task.

The model is served on loopback, with a key that only this process and that of lm-eval have. A failed task is reported
with its reason; the others continue.
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from workers.contract.reports.chat import TRAINED
from workers.contract.run import jobs
from workers.contract.run.jobs import LOOPBACK, BenchmarkSettings
from workers.trainer.configuration.spec import SpecError
from workers.trainer.jobs import ModelJob, programs
from workers.trainer.jobs.generation import ModelEngine, Usage
from workers.trainer.jobs.model_endpoint import ModelEndpoint
from workers.trainer.jobs.serving import open_engine

PYTHON, TASKS = "GRPO_LM_EVAL_PYTHON", "GRPO_LM_EVAL_TASKS"
PERCENT = re.compile(r"Requesting API: +(\d+)%")
BATCH_SIZE = 8
"""Number of prompts per request, for engines that handle one request at a time."""
MAX_LENGTH = 16_384
"""Maximum number of tokens of a prompt and its completion, so that a batch fits into a request's body."""
DEFAULT_LENGTH = 2048
"""Context length of a model that doesn't state its own; this is lm-eval's default."""
REQUEST_TIMEOUT_S = 3600
"""Time-out of a request in seconds; it is long because a CPU is slow."""
FETCH_ERRORS = re.compile(
    r"Couldn't reach|ConnectionError|ConnectError|LocalEntryNotFoundError|OfflineModeIsEnabled|DatasetNotFoundError"
    r"|Name or service not known|Max retries exceeded"
)
UNKNOWN_TASK = re.compile(r"Tasks not found|No tasks (specified|found)")


def run(job: ModelJob, settings: BenchmarkSettings) -> None:
    """Run the tasks one by one and report their results. Raises SpecError if all failed."""
    if invalid_names := [task for task in settings.tasks if not jobs.is_benchmark_name(task)]:
        raise SpecError(f"{invalid_names[0]!r} is not the name of a benchmark.")
    python = programs.interpreter("lm-eval", "lm-eval", jobs.BENCHMARK_ENVIRONMENT, PYTHON, stage=job.stage)
    results: list[dict[str, Any]] = []
    failures: list[dict[str, str]] = []
    job.stage("loading the model")
    with _serve_model(job) as (config, environment):
        config |= {"limit": settings.limit} if settings.limit else {}
        config |= {"include_path": os.environ[TASKS]} if os.environ.get(TASKS) else {}
        job.begin(100 * len(settings.tasks))
        for number, task in enumerate(settings.tasks):
            job.stage(f"{task}, {number + 1} of {len(settings.tasks)}")
            task_results, failure = _benchmark(job, python, config, environment, task, start=100 * number)
            results += task_results
            failures += [{"task": task, "why": failure}] if failure else []
            job.progress(100 * (number + 1))
            values = ", ".join(f"{result['task']} {result['metric']} {result['value']:.3f}" for result in results)
            reasons = [task["why"] for task in failures]
            job.result(" ".join([f"{values}." if values else "", *reasons]).strip(), results=results, failed=failures)
    if not results:
        raise SpecError(" ".join(dict.fromkeys(task["why"] for task in failures)))


# --- the model ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _serve_model(job: ModelJob) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Serve the model; yield the part of lm-eval's config that all tasks share, and lm-eval's environment variables."""
    model = job.spec.run.model
    if not Path(job.base).is_dir():  # fetched from the hub earlier, so that now only tasks' data are requested from it
        from huggingface_hub import snapshot_download

        folder = str(snapshot_download(job.base, revision=model.revision, local_files_only=True))
        model = replace(model, path=folder, revision=None)
    job = replace(job, spec=replace(job.spec, run=replace(job.spec.run, model=model)))
    engine = open_engine(job, with_base=False)
    key = secrets.token_urlsafe(32)
    digest = hashlib.sha256(key.encode()).hexdigest()
    endpoint = ModelEndpoint(engine, Usage(), digest=digest)
    with contextlib.closing(engine), contextlib.closing(endpoint):
        address = endpoint.open(LOOPBACK, 0)
        concurrency = {"num_concurrent": engine.at_once} if engine.at_once > 1 else {}
        arguments = {**_arguments(job, engine), **concurrency, "base_url": f"{address}/v1/completions"}
        batch = 1 if concurrency else BATCH_SIZE
        # A proxy is for the hub only.
        no_proxy = ",".join(filter(None, (os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), LOOPBACK)))
        yield (
            {"model": "local-completions", "model_args": arguments, "batch_size": batch},
            {**os.environ, "OPENAI_API_KEY": key, "NO_PROXY": no_proxy, "no_proxy": no_proxy},
        )


def _arguments(job: ModelJob, engine: ModelEngine) -> dict[str, Any]:
    from transformers import AutoTokenizer

    trusts_remote_code = job.spec.run.model.trust_remote_code
    tokenizer = AutoTokenizer.from_pretrained(job.tokenizer, trust_remote_code=trusts_remote_code)
    bos = tokenizer.bos_token_id
    return {
        "model": TRAINED,
        "tokenizer": job.tokenizer,
        "tokenizer_backend": "huggingface",
        # As the tokenizer does by itself; lm-eval would omit it.
        "add_bos_token": bos is not None and tokenizer("1")["input_ids"][0] == bos,
        "max_length": min(engine.context or DEFAULT_LENGTH, MAX_LENGTH),
        "timeout": REQUEST_TIMEOUT_S,
        **({"trust_remote_code": True} if trusts_remote_code else {}),
    }


# --- one task -----------------------------------------------------------------------------------------------------


def _benchmark(
    job: ModelJob, python: str, config: dict[str, Any], environment: dict[str, str], task: str, *, start: int
) -> tuple[list[dict[str, Any]], str]:
    """Run a task whose progress begins at `start`. Return its results, one per metric, and a failure message, "" if
    there are results."""
    out_folder = job.folder / "lm-eval" / task
    out_folder.mkdir(parents=True, exist_ok=True)
    config = {**config, "tasks": [task], "output_path": str(out_folder)}
    (out_folder / "config.yaml").write_text(json.dumps(config))  # JSON is YAML, and no path in it needs quoting
    command = [python, "-m", "lm_eval", "run", "--config", str(out_folder / "config.yaml")]
    code, last_lines = programs.follow(
        command,
        percent=PERCENT,
        progress=lambda percent: job.progress(start + percent),
        environment=environment,
    )
    if code != 0:
        return [], _failure_message(task, last_lines)
    result_files = sorted(out_folder.rglob("results_*.json"))
    if not result_files:
        return [], f"{task}: lm-eval didn't write any results."
    return _results(task, json.loads(result_files[-1].read_bytes())), ""


def _failure_message(task: str, last_lines: list[str]) -> str:
    output = "\n".join(last_lines)
    if UNKNOWN_TASK.search(output):
        return f"lm-eval has no task {task}."
    if FETCH_ERRORS.search(output):
        return f"The data of {task} can't be fetched from the hub on this host: {programs.last_of(last_lines)}"
    return f"{task} failed: {programs.last_of(last_lines)}"


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
