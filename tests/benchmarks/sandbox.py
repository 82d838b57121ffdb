"""What running a model's code in the sandbox costs, beside a bare `subprocess.run([python, ...])` for each, which holds
nothing: the same completions with the same asserts, as many at once, in turns in the same run.

A completion is a function of one line; three asserts call it, the same ones for the completions of a group, as when
GRPO scores. In the sandbox each completion is a fresh fork, beside its verifier's. First one after the other, where a
bare process has one core and an evaluation's processes share what there is; then, under `busy`, one a core, where what
is compared is processor time alone. `p99_ms` is from asking for one evaluation to its outcome, with the other places
busy too. `pure_group_ms`: what the library's pure rewards add on a group, which no sandbox is needed for.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.benchmarks import pure_rewards
from tests.benchmarks._figures import percentile
from workers.sandbox.outcomes import Backend, Limits, TestJob
from workers.sandbox.pool import Sandbox
from workers.sandbox.selftest import best as best_backend

_LIMITS = Limits(seconds=30)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    options = _options(argv or [])
    jobs = [_job(number, number // options.group) for number in range(options.evaluations)]
    chunks = [jobs[start : start + options.chunk] for start in range(0, len(jobs), options.chunk)]
    first, *others = [
        _measured(options.backend, at_once, jobs, chunks)
        for at_once in dict.fromkeys((options.at_once, options.at_once_busy))
    ]
    said = {"evaluations": len(jobs), "group": options.group}
    return {**first, **said, "busy": others[0] if others else first, **pure_rewards.measure()}


def _measured(backend: str | None, at_once: int, jobs: list[TestJob], chunks: list[list[TestJob]]) -> dict[str, Any]:
    with (
        Sandbox(Backend(backend) if backend else best_backend(), parallel=at_once) as sandbox,
        ThreadPoolExecutor(at_once) as threads,
    ):
        sandbox.test(jobs[:10], _LIMITS)
        ours = bare = 0.0
        for chunk in chunks:
            ours += _timed(lambda chunk=chunk: _in_sandbox(sandbox, chunk))  # type: ignore[misc]
            bare += _timed(lambda chunk=chunk: _bare(threads, chunk))  # type: ignore[misc]
        latencies = list(threads.map(lambda job: _timed(lambda: _in_sandbox(sandbox, [job])), jobs))
    return {
        "backend": sandbox.backend.value,
        "at_once": at_once,
        "evaluations_per_s": round(len(jobs) / ours, 1),
        "subprocess_per_s": round(len(jobs) / bare, 1),
        "speedup_over_subprocess": round(bare / ours, 2),
        "p50_ms": round(percentile(latencies, 0.5) * 1000, 2),
        "p99_ms": round(percentile(latencies, 0.99) * 1000, 2),
    }


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench sandbox", description=__doc__)
    parser.add_argument("--evaluations", type=int, default=1000)
    parser.add_argument("--group", type=int, default=8, help="completions that share their tests")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--at-once", type=int, default=1, help="default: one after the other")
    parser.add_argument("--at-once-busy", type=int, default=cores, help="the second time; default: one a core")
    parser.add_argument("--chunk", type=int, default=50, help="evaluations until it is the other's turn")
    parser.add_argument(
        "--backend", choices=[backend.value for backend in Backend], help="default: the best that holds"
    )
    return parser.parse_args(argv)


def _job(number: int, group: int) -> TestJob:
    """No two completions alike, so that nothing could be kept from one for the next."""
    tests = (f"assert f(1) == {group + 1}", f"assert f(0) == {group}", f"assert f(-1) < {group}")
    return TestJob(f"def f(x):\n    sum_{number} = x + {group}\n    return sum_{number}\n", tests)


def _in_sandbox(sandbox: Sandbox, jobs: list[TestJob]) -> None:
    _all_passed(
        outcome.passed == len(job.tests) for job, outcome in zip(jobs, sandbox.test(jobs, _LIMITS), strict=True)
    )


def _bare(threads: ThreadPoolExecutor, jobs: list[TestJob]) -> None:
    _all_passed(threads.map(_runs, jobs))


def _runs(job: TestJob) -> bool:
    program = job.source + "\n".join(job.tests)
    return subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0


def _all_passed(passed: Any) -> None:
    if not all(passed):
        raise RuntimeError("A completion that is right didn't pass.")


def _timed(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
