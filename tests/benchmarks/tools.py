"""What tools and turns cost, and what they bring.

`turn_s_64x0_5`: one call of each of 64 rollouts to a tool of 0.5 s, side by side in our executor; `stock_trl_s`: the
same in TRL's own loop. `tiny_success_before` and `tiny_success_after`: the share of held-out rows that a tiny model
gets right in a task of two turns (tests/benchmarks/_lookup.py), before and after its training on the CPU.
`advantage_error`: the largest difference between advantages of tokens and the formula written out in loops.
`gateway_added_p95_ms`: see tests/benchmarks/gateway.py.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.benchmarks import _lookup, gateway
from tests.trainer import builders
from workers.contract.run.episodes import EpisodeLimits, PartSpec
from workers.contract.wire.names import FileName
from workers.environments.entry import Entry, EntryKind, EpisodeSession, Result, ToolDescription
from workers.environments.executor import Call, Executor, Move
from workers.environments.library import LIBRARY
from workers.rewards.parameters import Params
from workers.rewards.tools import Tools
from workers.sandbox import selftest
from workers.sandbox.outcomes import SandboxUnavailable
from workers.sandbox.pool import Sandbox
from workers.trainer.episodes import credit

ROLLOUTS, SECONDS = 64, 0.5
PYTHON = ROOT / ".venv-train" / "bin" / "python"
SOURCE = f'''import time

def wait(number: int) -> int:
    """Wait, and give the number back.

    Args:
        number: Any.
    """
    time.sleep({SECONDS})
    return number
'''
GROUP, COEF = 8, 0.7


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="manage.py bench tools", description=__doc__)
    parser.add_argument(
        "--without-training", action="store_true", help="leave out the tiny model and the gateway: minutes"
    )
    options = parser.parse_args(argv)
    figures = {**turn(), "stock_trl_s": round(stock_trl(), 2), "advantage_error": advantage_error()}
    return figures if options.without_training else {**figures, **gateway.measure(), **tiny_success()}


def turn() -> dict[str, Any]:
    """Our executor with the default limits, its sandboxes warm as after a first step."""
    limits = EpisodeLimits()
    library, part, tool = LIBRARY, PartSpec("wait", "python_tool", {"source": SOURCE}), "own Python tool in the sandbox"
    try:
        backend = selftest.best()
    except SandboxUnavailable:
        library, part, tool = {"wait": WAIT}, PartSpec("wait", "wait"), "in this process: no sandbox holds here"
        backend = None
    tools = Tools(open_sandbox=lambda preload: Sandbox(backend, preload=preload, parallel=limits.at_once))
    try:
        executor = Executor([part], limits, tools, library=library)
        played = executor.begin([{}] * ROLLOUTS, range(ROLLOUTS))
        moves = [Move(one, [Call("wait", {"number": number})]) for number, one in enumerate(played)]
        executor.carry_out(moves[: limits.at_once])
        began = time.perf_counter()
        answers = executor.carry_out(moves)
        took = time.perf_counter() - began
        executor.close(played)
    finally:
        tools.close()
    assert [one.text for [one] in answers] == [str(number) for number in range(ROLLOUTS)], answers[0]
    return {"turn_s_64x0_5": round(took, 2), "turn_tool": tool}


def stock_trl() -> float:
    asked = [str(PYTHON), "-m", "tests.benchmarks._trl_tools", str(ROLLOUTS), str(SECONDS)]
    return float(subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def tiny_success() -> dict[str, float]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        model, began = Path(folder, "model"), time.monotonic()
        module = [str(PYTHON), "-m", "tests.benchmarks._lookup"]
        subprocess.run([*module, "--model", str(model)], cwd=ROOT, env=environment, capture_output=True, check=True)
        warmed = time.monotonic()
        attempt = builders.attempt_folder(
            Path(folder, "attempt"),
            model=model,
            dataset=_lookup.rows(),
            rewards=_lookup.REWARDS,
            grpo=_lookup.GRPO,
            eval_rows=_lookup.EVALUATED,
            run={"episodes": _lookup.EPISODES},
        )
        subprocess.run([*module, str(attempt)], cwd=ROOT, env=environment, capture_output=True, check=True)
        ended = time.monotonic()
        success = [
            line["data"]["eval_rewards/right/mean"]
            for line in builders.lines(attempt / FileName.METRICS)
            if "eval_rewards/right/mean" in line["data"]
        ]
    return {
        "tiny_success_before": round(success[0], 3),
        "tiny_success_after": round(success[-1], 3),
        "tiny_warm_up_s": round(warmed - began),
        "tiny_training_s": round(ended - warmed),
    }


def advantage_error() -> float:
    """Over 200 random batches of three groups."""
    dice, largest = random.Random(18), 0.0
    for _ in range(200):
        rewards = [[dice.choice([None, dice.random()]) for _ in range(dice.randint(1, 4))] for _ in range(3 * GROUP)]
        outcomes = [dice.gauss(0, 1) for _ in rewards]
        spans = [[(8 * turn, 8 * turn + dice.randint(1, 6)) for turn in range(len(one))] for one in rewards]
        turns = credit.turn_advantages([rewards], [1.0], GROUP)
        tokens = credit.per_token(outcomes, turns, spans, COEF, 32)
        for place, of in enumerate(tokens):
            for token, value in enumerate(of):
                expected = _written_out(rewards, outcomes[place], spans[place], place, token)
                largest = max(largest, abs(value - expected))
    return largest


def _written_out(rewards: Any, outcome: float, spans: Any, place: int, token: int) -> float:
    """The advantage of one token, by the formula in workers.trainer.episodes.credit."""
    for turn, (start, stop) in enumerate(spans):
        reward = rewards[place][turn]
        members = rewards[place // GROUP * GROUP :][:GROUP]
        scored = [one[turn] for one in members if turn < len(one) and one[turn] is not None]
        if start <= token < stop and reward is not None and len(scored) > 1:
            return outcome + COEF * (reward - fmean(scored)) / (stdev(scored) + 1e-4)
    return outcome


class _Wait(EpisodeSession):
    def tools(self) -> list[ToolDescription]:
        schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
        return [ToolDescription("wait", "Wait.", schema)]

    def call(self, name: str, arguments: Any, seconds: float) -> Result:
        time.sleep(SECONDS)
        return Result(str(arguments["number"]))


WAIT = Entry("wait", "Wait", "", Params, kind=EntryKind.TOOL, open=lambda name, params, tools: _Wait())
"""Where no sandbox holds."""


if __name__ == "__main__":
    print(json.dumps(main()))
