"""The prompt that the pages show is the one that transformers makes, to the character and the token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controlplane.catalogue.datasets.reader.prompts.chat import ChatRenderer
from tests.controlplane.catalogue.datasets.tokenizers import CHATML, INST, TALK, a_tokenizer
from tests.trainer.preloaded import Preloaded

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

TALKS = [
    TALK,
    TALK[1:2],
    [{"role": "user", "content": "<|im_end|> in a text, </s> and\r\n tabs\t"}],
    [{"role": "system", "content": ""}, {"role": "user", "content": "🙂 é"}],
]
PROGRAM = """
import json, sys
from transformers import AutoTokenizer
folder, talks = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(folder)
made = []
for talk in talks:
    text = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    tokens = tokenizer.apply_chat_template(talk, add_generation_prompt=True, return_dict=False)
    made.append([text, len(tokens), len(tokenizer(talk[-1]["content"])["input_ids"])])
print(json.dumps(made))
"""


def by_transformers(preloaded: Preloaded, folder: Path) -> list[tuple[str, int, int]]:
    done = preloaded.run("-c", PROGRAM, stdin=json.dumps([str(folder), TALKS]))
    return [tuple(one) for one in json.loads(done.stdout.splitlines()[-1])]


def by_us(folder: Path) -> list[tuple[str, int | None, int | None]]:
    made = ChatRenderer(folder)
    return [(*made.render(talk), made.render(talk[-1:], chat=False)[1]) for talk in TALKS]


@pytest.mark.parametrize("template", [CHATML, INST], ids=["chatml", "inst"])
def test_of_a_realistic_template(template: str, preloaded: Preloaded, tmp_path: Path) -> None:
    folder = a_tokenizer(tmp_path, chat_template=template)
    assert by_us(folder) == by_transformers(preloaded, folder)


def test_of_the_tiny_model(preloaded: Preloaded, tiny_model: Path) -> None:
    assert by_us(tiny_model) == by_transformers(preloaded, tiny_model)
