"""A tiny language model that knows a little arithmetic, created for the demo and the tests.

`python -m workers.trainer.tiny FOLDER` writes a Qwen2 model of about a million parameters with its own tokenizer and
chat template. Its short supervised warm-up shows right answers first and later mixes in many wrong and malformed ones,
so it starts as a model that suits GRPO: it knows the answer but often doesn't give it.

`--problems FILE` writes the demo's dataset and `--demo-config` prints its settings; neither loads torch.
"""

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workers.trainer import demo
from workers.trainer.configuration import environment, imports

if TYPE_CHECKING:
    from transformers import Qwen2Tokenizer

SPECIAL = ("<|pad|>", "<|im_start|>", "<|im_end|>")
WORDS = ("<think>", "</think>", "<answer>", "</answer>", "user", "assistant", "system", "What is", "Compute")
"""Strings with a token each. They are ordinary text, which decoding keeps."""

CHAT_TEMPLATE = (
    "{% if tools %}<|im_start|>system\nTools:{% for tool in tools %} {{ tool['function']['name'] }}"
    "({{ tool['function']['parameters']['properties'] | join(', ') }}){% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "{% for call in message['tool_calls'] or [] %}<tool_call>"
    '{"name": {{ call["function"]["name"] | tojson }}, "arguments": {{ call["function"]["arguments"] | tojson }}}'
    "</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Template with all tools in one line of names, because each byte is a token. Calls are JSON in tags, which
workers.trainer.episodes.templates parses."""

SHAPE: dict[str, Any] = {
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}

CORRECT_SHARE = 0.75
"""Share of the warm-up with right answers only, which GRPO brings back."""
WRONG_SHARE = 0.5
"""Share of later answers that are a nearby but wrong number."""
MALFORMED_SHARE = 0.25
"""Share of later completions that have a format error."""

STEPS, QUICK_STEPS, BATCH, LEARNING_RATE = 300, 12, 64, 3e-3


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workers.trainer.tiny", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="folder for the model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--quick", action="store_true", help="almost no warm-up, for tests that only need a model that loads"
    )
    parser.add_argument("--problems", type=Path, metavar="FILE", help="write the demo's dataset as JSONL")
    parser.add_argument("--count", type=int, default=400, help="how many problems")
    parser.add_argument("--demo-config", action="store_true", help="print the demo's settings as JSON")
    options = parser.parse_args(argv)
    if options.demo_config:
        print(json.dumps(demo.CONFIG))
    if options.problems:
        options.problems.parent.mkdir(parents=True, exist_ok=True)
        options.problems.write_text(demo.problem_lines(options.count, options.seed), encoding="utf-8")
    if options.folder:
        make(options.folder, seed=options.seed, steps=QUICK_STEPS if options.quick else STEPS)
    return 0


def make(folder: Path, *, seed: int, steps: int) -> None:
    """Create a tokenizer and a random model, warm the model up, and save both as an ordinary model folder."""
    environment.wait_without_spinning()
    with imports.speed_up():
        import torch
        from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    tokenizer = make_tokenizer()
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in SPECIAL}
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            pad_token_id=ids["<|pad|>"],
            eos_token_id=ids["<|im_end|>"],
            bos_token_id=None,
            **SHAPE,
        )
    )
    _warm_up(model, tokenizer, random.Random(seed), steps)  # noqa: S311
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_tokenizer() -> "Qwen2Tokenizer":
    """Create Qwen2's tokenizer without merges, with one token for each byte, so that it accepts any text, and for each
    word of WORDS. It must have Qwen2's class: AutoTokenizer uses that for a Qwen2 model's folder, whatever was
    saved."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Tokenizer

    vocabulary = {token: number for number, token in enumerate((*SPECIAL, *sorted(ByteLevel.alphabet())))}
    tokenizer = Qwen2Tokenizer(
        vocab=vocabulary,
        merges=[],
        pad_token="<|pad|>",  # noqa: S106
        eos_token="<|im_end|>",  # noqa: S106
        unk_token="<|pad|>",  # noqa: S106
        extra_special_tokens=["<|im_start|>"],
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=SHAPE["max_position_embeddings"],
    )
    tokenizer.add_tokens(list(WORDS))
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _warm_up(model: Any, tokenizer: "Qwen2Tokenizer", rng: random.Random, steps: int) -> None:
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps, pct_start=0.1)
    facts = list(demo.facts())
    started_at = time.monotonic()
    model.train()
    for step in range(1, steps + 1):
        faulty, chat = step > CORRECT_SHARE * steps, step % 2 == 0  # one kind of prompt per batch needs less padding
        examples = [_example(rng, rng.choice(facts), faulty=faulty, chat=chat) for _ in range(BATCH)]
        ids, mask, labels = _batch(examples, tokenizer)
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 20 == 0 or step == steps:
            print(f"warm-up {step}/{steps}, loss {loss.item():.3f}, {time.monotonic() - started_at:.0f} s", flush=True)
    model.eval()


def _example(rng: random.Random, fact: tuple[int, str, int], *, faulty: bool, chat: bool) -> tuple[str, str]:
    """Return (prompt, completion). Datasets may map prompts to plain strings or to chats, so the model learns both."""
    a, op, b = fact
    question = rng.choice(demo.PHRASES).format(a=a, op=op, b=b)
    if chat:
        question = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    answer = demo.result(a, op, b)
    if faulty and rng.random() < WRONG_SHARE:
        answer = max(0, answer + rng.choice((-10, -3, -2, -1, 1, 2, 3, 10)))
    thought, tagged_answer = f"<think>{a}{op}{b}</think>", f"<answer>{answer}</answer>"
    if faulty and rng.random() < MALFORMED_SHARE:
        return question, rng.choice(
            (tagged_answer, f"{thought}{answer}", f"<think>{a}{op}{b}{tagged_answer}", f"{thought}<answer>{answer}")
        )
    return question, thought + tagged_answer


def _batch(examples: list[tuple[str, str]], tokenizer: "Qwen2Tokenizer") -> tuple[Any, Any, Any]:
    """Tokenize a batch into (token ids, attention mask, labels), each (examples, tokens), padded on the right."""
    import torch

    prompts = tokenizer([prompt for prompt, _ in examples])["input_ids"]
    completions = tokenizer([completion + tokenizer.eos_token for _, completion in examples])["input_ids"]
    width = max(len(p) + len(c) for p, c in zip(prompts, completions, strict=True))
    rows, labels = [], []
    for prompt, completion in zip(prompts, completions, strict=True):
        padding = width - len(prompt) - len(completion)
        rows.append(prompt + completion + [tokenizer.pad_token_id] * padding)
        labels.append([-100] * len(prompt) + completion + [-100] * padding)
    ids = torch.tensor(rows)
    return ids, (ids != tokenizer.pad_token_id).long(), torch.tensor(labels)


if __name__ == "__main__":
    sys.exit(main())
