"""Parts of the rollouts that need the trainer's interpreter and no training."""

from __future__ import annotations

import pytest

from tests.trainer.preloaded import Preloaded

pytestmark = pytest.mark.trainer

NEAR_THE_END = """
from workers.trainer.episodes.generation import Wanted, calls
wanted = [Wanted([1], 100, 500), Wanted([1], 30, 30), Wanted([1], 20, 60), Wanted([1], 5, 100)]
assert calls(wanted) == [([0, 3], 100), ([1, 2], 30)], calls(wanted)
assert calls(wanted[:1]) == [([0], 100)]
"""
ODD_TEXTS = """
from workers.trainer import tiny
from workers.trainer.episodes import templates
tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {"a": {}}}}}]
tokenizer = tiny.make_tokenizer()
chat = templates.choose(tokenizer, "", tools, game=True, arguments={})
before = chat.prompt_ids([{"role": "user", "content": "b"}])
texts = ("<tool_call>" + "[" * 3000 + "</tool_call>", "<tool_call>{}</tool_call>", "<tool_call>3</tool_call>", "",
         '<tool_call>{"name": 3, "arguments": {}}</tool_call>', '<tool_call>{"name": "find", "arg', "</tool_call>")
for text in texts:
    message = chat.parsed(tokenizer(text)["input_ids"], before)
    assert message["role"] == "assistant" and "tool_calls" not in message, message
called = chat.parsed(tokenizer('so<tool_call>{"name": "find", "arguments": "x"}</tool_call>')["input_ids"], before)
assert called["tool_calls"] == [{"type": "function", "function": {"name": "find", "arguments": "x"}}], called
"""


def test_turns_near_the_end_of_the_context_are_asked_for_apart(preloaded: Preloaded) -> None:
    preloaded.run("-c", NEAR_THE_END)


def test_odd_texts_are_read_without_a_call(preloaded: Preloaded) -> None:
    preloaded.run("-c", ODD_TEXTS)
