"""A task of two turns for a tiny model: look a letter up by a tool, then say the digit that the tool told.

    python -m tests.benchmarks._lookup --model FOLDER    a model that can do it and mostly doesn't
    python -m tests.benchmarks._lookup --model FOLDER 1.5b  the same in the shape of a real one, on a GPU
    python -m tests.benchmarks._lookup FOLDER            the trainer, with the tool in its library

The digit is the row's own, so that nobody can know it without asking. The warm-up is as short as workers.trainer.tiny's
and mixes faults in: digits that are guessed without a call, calls for another letter, other digits than the tool's.
"""

from __future__ import annotations

import random
import string
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.contract.run.episodes import EpisodeLimits, EpisodeSpec, PartSpec, ToolError
from workers.contract.run.spec import RewardSpec
from workers.environments.entry import Entry, EntryKind, EpisodeSession, Result, ToolDescription
from workers.environments.library import LIBRARY
from workers.rewards.parameters import Params

LETTERS, DIGITS = string.ascii_uppercase[:12], string.digits
PROMPT = "Find {letter}."
CALL = ('{"name": "find", "arguments": {"letter": "', '"}}')
"""What stands around the letter. The model's tokenizer has each as one token: a byte is a token otherwise."""
STEPS, BATCH, RATE = 250, 32, 3e-3
USUAL: dict[str, Any] = {
    "hidden_size": 1536,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "intermediate_size": 8960,
    "max_position_embeddings": 2048,
    "vocab_size": 151_936,
}
"""Qwen2's of 1.5 billion parameters."""
USUAL_RATE = 2e-4
EVALUATED = 48
"""Rows that are kept out of the training."""
PROPER = 0.7
"""The share of the warm-up without faults."""
GUESSED, MISTAKEN = 0.8, 0.7
"""The share of answers without a call, and of letters and of digits that are wrong."""
REWARDS = (
    RewardSpec("right", "exact_match", 1.0, {"source": "answer tag"}),
    RewardSpec("found", "answer_in_results", 0.5, per_turn=True),
)
EPISODES = EpisodeSpec("Lookup", 1, (PartSpec("find", "lookup"),), EpisodeLimits(turns=2, output_tokens=32))
GRPO: dict[str, Any] = {
    "max_steps": 60,
    "learning_rate": 4e-4,
    "lr_scheduler_type": "constant",
    "per_device_train_batch_size": 64,
    "num_generations": 8,
    "max_completion_length": 48,
    "temperature": 1.0,
    "beta": 0.0,
    "loss_type": "dapo",
    "eval_strategy": "steps",
    "eval_on_start": True,
    "eval_steps": 30,
    "per_device_eval_batch_size": 64,
    "num_generations_eval": 1,
    "save_strategy": "no",
    "seed": 42,
}


def rows() -> list[dict[str, Any]]:
    """Every letter with every digit, in an order of no meaning."""
    pairs = [(letter, digit) for letter in LETTERS for digit in DIGITS]
    random.Random(0).shuffle(pairs)
    return [
        {"prompt": [{"role": "user", "content": PROMPT.format(letter=letter)}], "answer": digit, "letter": letter}
        for letter, digit in pairs
    ]


class Lookup(EpisodeSession):
    """Tells the row's digit to who asks for its letter."""

    def __init__(self) -> None:
        self._row: Mapping[str, Any] = {}

    def reset(self, row: Mapping[str, Any], seed: int) -> str:
        self._row = row
        return ""

    def tools(self) -> list[ToolDescription]:
        schema = {"type": "object", "properties": {"letter": {"type": "string"}}, "required": ["letter"]}
        return [ToolDescription("find", "Look a letter up.", schema)]

    def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Result:
        if arguments["letter"] == self._row["letter"]:
            return Result(str(self._row["answer"]))
        return Result("There is nothing.", ToolError.RAISED)


LOOKUP = Entry("lookup", "Lookup", "", Params, kind=EntryKind.TOOL, open=lambda name, params, tools: Lookup())


def make(folder: Path, *, shape: Mapping[str, Any] | None = None, rate: float = RATE) -> None:
    """In bf16 where a GPU makes it."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from workers.trainer import tiny
    from workers.trainer.configuration import environment

    environment.wait_without_spinning()
    torch.manual_seed(0)
    tokenizer = tiny.make_tokenizer()
    tokenizer.add_tokens(["<tool_call>", "</tool_call>", *CALL, "Tools: find(letter)", "Find ", "tool"])
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    # Tied embeddings copy sooner.
    full = {
        **tiny.SHAPE,
        "num_hidden_layers": 2,
        "tie_word_embeddings": True,
        "vocab_size": len(tokenizer),
        **(shape or {}),
    }
    device = "cuda" if shape and torch.cuda.is_available() else "cpu"
    model = Qwen2ForCausalLM(Qwen2Config(**ends, **full)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=STEPS, pct_start=0.1)
    draw = random.Random(0)
    for step in range(STEPS):
        examples = [_example(draw, tokenizer, faulty=step >= PROPER * STEPS) for _ in range(BATCH)]
        ids, mask, labels = (tensor.to(device) for tensor in tiny._batch(examples, tokenizer))
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 20 == 19:
            print(f"warm-up {step + 1}/{STEPS}  loss {loss.item():.3f}", flush=True)
    (model.to(torch.bfloat16) if device == "cuda" else model).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _example(draw: random.Random, tokenizer: Any, *, faulty: bool) -> tuple[str, str]:
    """(prompt, completion) of one of the two turns."""
    letter, digit = draw.choice(LETTERS), draw.choice(DIGITS)
    asked: list[dict[str, Any]] = [{"role": "user", "content": PROMPT.format(letter=letter)}]
    if draw.random() < 0.35:  # the second turn is harder to learn
        wrong = faulty and draw.random() < MISTAKEN
        called = f"<tool_call>{draw.choice(LETTERS) if wrong else letter}</tool_call>".replace(">", f">{CALL[0]}", 1)
        called = called.replace("</", f"{CALL[1]}</")
        said = f"<answer>{draw.choice(DIGITS)}</answer>" if faulty and draw.random() < GUESSED else called
    else:
        call = {"type": "function", "function": {"name": "find", "arguments": {"letter": letter}}}
        asked += [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": digit}]
        wrong = faulty and draw.random() < MISTAKEN
        said = f"<answer>{draw.choice(DIGITS) if wrong else digit}</answer>"
    tools = [{"type": "function", "function": Lookup().tools()[0].as_dict()["function"]}]
    return tokenizer.apply_chat_template(asked, tools=tools, tokenize=False, add_generation_prompt=True), said


if __name__ == "__main__":
    if sys.argv[1] == "--model":
        usual = sys.argv[3:] == ["1.5b"]
        make(Path(sys.argv[2]), **({"shape": USUAL, "rate": USUAL_RATE} if usual else {}))
        sys.exit()
    from workers.trainer.__main__ import main as train

    LIBRARY[LOOKUP.key] = LOOKUP
    sys.exit(train(sys.argv[1:]))
