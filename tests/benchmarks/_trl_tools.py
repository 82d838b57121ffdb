"""python -m tests.benchmarks._trl_tools ROLLOUTS SECONDS: how long TRL's own loop takes for one call of each rollout.

The loop is TRL's; what it would generate afterwards is left out.
"""

from __future__ import annotations

import json
import sys
import time
from types import SimpleNamespace
from typing import Any

from trl import GRPOTrainer


class CallsAreDone(Exception):
    """The loop wants to append the results."""


def main(rollouts: int, seconds: float) -> float:
    def wait(number: int) -> str:
        time.sleep(seconds)
        return str(number)

    def stop(*_: Any, **__: Any) -> Any:
        raise CallsAreDone

    trainer = SimpleNamespace(
        max_tool_calling_iterations=1,
        _sync_tool_dicts=[{"wait": wait}] * rollouts,
        _async_tool_dicts=[{}] * rollouts,
        _get_tool_suffix_ids=stop,
    )
    calls = [[{"type": "function", "function": {"name": "wait", "arguments": {"number": n}}}] for n in range(rollouts)]
    completions = [[{"role": "assistant", "content": "", "tool_calls": of}] for of in calls]
    prompts: list[list[Any]] = [[{"role": "user", "content": "Wait."}] for _ in range(rollouts)]
    began = time.perf_counter()
    try:
        GRPOTrainer._tool_call_loop(trainer, prompts, [[1]] * rollouts, [[2]] * rollouts, completions, None, None, {})
    except CallsAreDone:
        return time.perf_counter() - began
    raise AssertionError("TRL's loop has another form than this benchmark knows")


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), float(sys.argv[2]))))
