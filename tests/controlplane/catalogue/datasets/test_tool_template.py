"""Whether a model's chat template can show tools, calls and results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controlplane.catalogue.datasets.reader.prompts import tool_template
from tests.controlplane.catalogue.datasets.tokenizers import CHATML, INST, a_tokenizer
from workers.contract.stack.tool_templates import alternative

TOOLS = """\
{%- if tools %}{{- '<|im_start|>system\\n' }}
{%- for tool in tools %}{{- tool | tojson }}{% endfor %}{{- '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content }}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>' + (call.function | tojson) + '</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""


def found(folder: Path, template: Any, **config: Any) -> dict[str, Any]:
    return tool_template.run(a_tokenizer(folder / "model", chat_template=template, **config), {})


def test_a_template_that_shows_tools_lacks_nothing(tmp_path):
    answer = found(tmp_path, TOOLS)
    assert (answer["lacks"], answer["keeps_prefix"], answer["in_tags"]) == ([], True, True)
    assert (answer["marks"], answer["problem"], answer["parses"]) == (["<|im_start|>"], "", False)


def test_a_template_that_drops_calls_and_results_is_found(tmp_path):
    assert found(tmp_path, CHATML)["lacks"] == ["tools", "calls", "results"]


def test_a_template_that_refuses_a_tools_role_says_so(tmp_path):
    answer = found(tmp_path, "{{ raise_exception('only user and assistant') }}")
    assert answer["lacks"] == ["calls", "results"]
    assert "only user and assistant" in answer["problem"]
    assert found(tmp_path / "inst", INST)["lacks"]


def test_arguments_may_be_taken_as_text(tmp_path):
    as_text = TOOLS.replace("(call.function | tojson)", "call.function.name + call.function.arguments")
    assert found(tmp_path, as_text)["lacks"] == []


def test_a_template_that_writes_earlier_messages_anew_is_found(tmp_path):
    anew = TOOLS.replace("message.role + '\\n'", "message.role + (messages | length | string) + '\\n'")
    assert found(tmp_path, anew)["keeps_prefix"] is False


@pytest.mark.parametrize("template", ["{% if %}", "{% for i in range(10**9) %}a{% endfor %}", None])
def test_what_is_no_template_is_a_problem(tmp_path, template):
    assert found(tmp_path, template)["problem"]


def test_a_tokenizer_may_say_itself_how_calls_are_read(tmp_path):
    assert found(tmp_path, TOOLS, response_template={"fields": {}})["parses"] is True


@pytest.mark.parametrize(
    ("marks", "family", "name"),
    [
        (("<|im_start|>",), "llama", "qwen2_5"),
        (("<|im_start|>",), "qwen3", "qwen3"),
        (("<|start_header_id|>",), "llama", "llama3_2"),
        ((), "gemma3", ""),
    ],
)
def test_the_alternative_is_written_in_the_models_own_tokens(marks, family, name):
    assert alternative(marks, family) == name
