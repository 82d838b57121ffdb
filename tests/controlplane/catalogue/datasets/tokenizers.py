"""Tokenizer folders as models have them, made on the spot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

CHATML = """\
{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(asked=0) %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {%- set ns.asked = ns.asked + 1 %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- if tools is not none %}{% continue %}{% endif %}
        {{- '<|im_start|>assistant\\n' }}{% generation %}{{ message.content | trim }}{% endgeneration %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""
INST = """\
{{ bos_token }}
{% if messages[0]['role'] == 'system' %}
    {% set system_message = messages[0]['content'] | trim + '\\n\\n' %}
    {% set messages = messages[1:] %}
{% else %}
    {% set system_message = '' %}
{% endif %}
{% for message in messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Roles must alternate user/assistant/user/…') }}
    {% endif %}
    {% if message['role'] == 'user' %}
{{ '[INST] ' + (system_message if loop.first else '') + message['content'] | trim + ' [/INST]' }}
    {% else %}
{{ ' ' + message['content'] | trim + ' ' + eos_token }}
    {% endif %}
{% endfor %}
{% if messages | length > 50 %}{{ {'a': 'ü<'} | tojson }}{{ strftime_now('%Y') }}{% endif %}
"""
TALK = [
    {"role": "system", "content": "Answer with a number."},
    {"role": "user", "content": " What is 2 + 2?\n"},
    {"role": "assistant", "content": " 4 <b>&amp;</b> "},
    {"role": "user", "content": "Größer: 三 × 3?"},
]


def a_tokenizer(folder: Path, *, chat_template: Any = CHATML, **config: Any) -> Path:
    """A tokenizer of bytes with a beginning and an end, in the files of a model's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    vocabulary = {
        token: number for number, token in enumerate([*special, *sorted(pre_tokenizers.ByteLevel.alphabet())])
    }
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    made.enable_truncation(5)  # as it was saved by whoever trained it
    made.save(str(folder / "tokenizer.json"))
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        **config,
    }
    if chat_template:
        told["chat_template"] = chat_template
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return folder
