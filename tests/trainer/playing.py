"""python -m tests.trainer.playing FOLDER: the trainer, with entries of tests in its library.

`python -m tests.trainer.playing --calls FOLDER` writes a tiny model that has learnt one thing: to call the calculator,
and to say an answer when it has a result.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.environments import LIBRARY, Entry, EntryKind, Observation, Result, Session, ToolDescription
from workers.rewards.parameters import Params, param
from workers.trainer.__main__ import main as train

CALL = '<tool_call>{"name": "calc", "arguments": {"expression": "1+2"}}</tool_call>'
ANSWER = "<answer>3</answer>"
STEPS, BATCH = 120, 4


@dataclass(frozen=True)
class EchoParams(Params):
    rounds: int = param(2, "The episode is over after so many answers.", min=1, max=100)


class Echo(Session):
    """Gives the number of its answer for each."""

    def __init__(self, rounds: int) -> None:
        self._rounds, self._round = rounds, 0

    def reset(self, row: Mapping[str, Any], seed: int) -> str:
        return f" ({seed % 10})"

    def answer(self, text: str, seconds: float) -> Observation:
        self._round += 1
        return Observation(f"{self._round}", float(self._round), done=self._round >= self._rounds)


class Blocking(Session):
    """A calculator that never comes back."""

    def __init__(self, name: str) -> None:
        self._name = name

    def tools(self) -> list[ToolDescription]:
        schema = {"type": "object", "properties": {"expression": {"type": "string"}}}
        return [ToolDescription(self._name, "Wait.", schema)]

    def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Result:
        while True:
            time.sleep(60)


ENTRIES = (
    Entry("echo", "Echo", "", EchoParams, kind=EntryKind.GAME, open=lambda name, params, tools: Echo(params.rounds)),
    Entry("blocking", "Blocking", "", Params, kind=EntryKind.TOOL, open=lambda name, params, tools: Blocking(name)),
)


def make_caller(folder: Path) -> None:
    """Fits on two examples until the model knows them by heart."""
    import torch
    from transformers import AutoModelForCausalLM

    from workers.trainer import demo, tiny

    tiny.make(folder, seed=0, steps=1)
    tokenizer = tiny.make_tokenizer()
    model = AutoModelForCausalLM.from_pretrained(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    draw = random.Random(0)
    tools = [{"type": "function", "function": {"name": "calc", "parameters": {"properties": {"expression": {}}}}}]
    for _ in range(STEPS):
        examples = []
        for _ in range(BATCH):
            fact = draw.choice(list(demo.facts()))
            asked: list[dict[str, Any]] = [
                {"role": "user", "content": draw.choice(demo.PHRASES).format(a=fact[0], op=fact[1], b=fact[2])}
            ]
            examples.append(
                (tokenizer.apply_chat_template(asked, tools=tools, tokenize=False, add_generation_prompt=True), CALL)
            )
            call = {"function": {"name": "calc", "arguments": {"expression": "1+2"}}}
            asked += [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "3"}]
            examples.append(
                (tokenizer.apply_chat_template(asked, tools=tools, tokenize=False, add_generation_prompt=True), ANSWER)
            )
        ids, mask, labels = tiny._batch(examples, tokenizer)
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.3f}")
    model.save_pretrained(folder)


if __name__ == "__main__":
    if sys.argv[1] == "--calls":
        make_caller(Path(sys.argv[2]))
        sys.exit()
    LIBRARY.update({entry.key: entry for entry in ENTRIES})
    sys.exit(train(sys.argv[1:]))
