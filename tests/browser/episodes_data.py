"""A run of episodes: a search and a calculator, long results, failures, odd messages, credit per turn, all charts."""

from __future__ import annotations

import random
from typing import Any

from runs.engine.models import Attempt, Run
from runs.intake.host_api import uploads
from runs.intake.host_api.ingest import accept
from tests.runs import builders
from workers.contract.reports.lines import OutboxLine
from workers.contract.run.episodes import EpisodeEnd, ToolError, tool_metric, turn_reward

LIMITS = {"turns": 6, "calls": 4}
REWARDS = [{"name": "exact match", "function": "numeric_match"}, {"name": "format", "function": "think_tags"}]
PASSAGE = "The South Pole was first reached on 14 December 1911 by a Norwegian party led by Roald Amundsen. "


def a_run(name: str) -> Attempt:
    """Eight GPUs are more than the host has, so nothing is started."""
    run = builders.a_run(name, hardware={"rollout": "colocate", "trainer_gpus": 8})
    spec = {**run.spec, "rewards": REWARDS, "episodes": {"name": "search", "version": 1, "limits": LIMITS}}
    Run.objects.filter(pk=run.pk).update(spec=spec)
    return builders.an_attempt(run=Run.objects.get(pk=run.pk))


def fill(attempt: Attempt, *, steps: int = 40, groups: int = 2, rows: int = 4, size: int = 6) -> None:
    draw = random.Random(3)
    for step in range(1, steps + 1):
        lines = [_group(draw, step, (step * groups + i) % rows, size, step / steps) for i in range(groups)]
        attempt.refresh_from_db()
        uploads.samples(attempt, attempt.samples_ack + 1, lines)
    accept(attempt, [_metrics(draw, step, step / steps) for step in range(1, steps + 1)])


def _group(draw: random.Random, step: int, row: int, size: int, learned: float) -> dict[str, Any]:
    return {
        "step": step,
        "row": row,
        "prompt": f"Who was the {row + 1}. to reach the South Pole, and when?",
        "answer": "Amundsen, 1911",
        "mode": "train",
        "completions": [_episode(draw, learned, i) for i in range(size)],
    }


def _episode(draw: random.Random, learned: float, index: int) -> dict[str, Any]:
    said: list[Any] = []
    turns = draw.randint(1, 2 + round(3 * learned))
    for number in range(turns - 1):
        said += _turn(draw, learned, number)
    right = draw.random() < 0.2 + 0.7 * learned
    said.append(_model(draw, f"<think>{PASSAGE * 2}</think>\nIt was {'Amundsen' if right else 'Scott'}, in 1911."))
    if index == 5:
        said += [{"role": "user", "content": "Go on.", "reward": 0.1}, "a bare word", {"role": "assistant"}]
    return {
        "text": said[-1]["content"] if index != 5 else "",
        "turns": said,
        "tokens": sum(m.get("tokens", 0) for m in said if isinstance(m, dict)),
        "ended": right,
        "end": "eos" if right else draw.choice(["length", *EpisodeEnd]),
        "rewards": {"exact match": float(right), "format": 0.5},
        "reward": float(right),
        "advantage": draw.uniform(-1.5, 1.5),
    }


def _turn(draw: random.Random, learned: float, number: int) -> list[Any]:
    calls = [_call("search", {"query": f"south pole {number}", "k": 3, "filters": {"year": [1900, 1912]}})]
    if number == 1:
        calls.append(_call("calculator", {"expression": "1911 - 1872"}))
    failed = draw.random() < 0.5 - 0.45 * learned
    error = draw.choice(list(ToolError)) if failed else ""
    text = "The search took longer than 20 s." if failed else PASSAGE * draw.choice([1, 3, 30])
    answers = [_result("search", text, draw, error)]
    if number == 1:
        answers.append(_result("calculator", "39", draw, ""))
    return [{**_model(draw, "I look it up." if number else ""), "tool_calls": calls}, *answers]


def _model(draw: random.Random, text: str) -> dict[str, Any]:
    credit = {"reward": draw.choice([0.0, 0.5, 1.0, None]), "advantage": draw.uniform(-1.2, 1.2)}
    return {"role": "assistant", "content": text, "tokens": 20 + len(text) // 4, **credit}


def _call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def _result(name: str, text: str, draw: random.Random, error: str) -> dict[str, Any]:
    seconds = round(draw.expovariate(3), 3)
    return {"role": "tool", "name": name, "content": text, "tokens": len(text) // 4, "seconds": seconds, "error": error}


def _metrics(draw: random.Random, step: int, learned: float) -> OutboxLine:
    values = {
        "reward": 0.2 + 0.6 * learned,
        "completions/mean_length": 400.0,
        "episodes/turns/mean": 2 + 2 * learned,
        "episodes/turns/max": 6.0,
        "episodes/cut": 0.4 - 0.3 * learned,
        "episodes/tool_share": 0.5 + 0.1 * draw.random(),
        "episodes/seconds/p95": 9 + draw.random(),
        "tools/call_frequency": 1 + 2 * learned,
        "tools/failure_frequency": 0.4 - 0.35 * learned,
        "gateway/requests": 128.0,
        "gateway/latency_s/p95": 0.4,
        "gateway/waiting_s": 3.0,
        "gateway/gone": 1.0,
        "gateway/staleness": 0.5,
    }
    for tool, often in (("search", 1.5), ("calculator", 0.3)):
        figures = {"calls": often * (0.5 + learned), "failed": 0.4 - 0.3 * learned, "p50_s": 0.2, "p95_s": 1.5}
        values |= {tool_metric(tool, what): value for what, value in figures.items()}
    values |= {turn_reward(k): max(0.0, learned - 0.1 * k) for k in range(1, 5)}
    return builders.train(step, step, **values)
