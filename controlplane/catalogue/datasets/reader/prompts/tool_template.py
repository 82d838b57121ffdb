"""The verb `tools`, which finds out whether a model's chat template can show tools, calls and results."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from controlplane.catalogue.datasets.reader.prompts.chat import CONFIG, json_of, special_of, template_of
from controlplane.catalogue.datasets.reader.prompts.chat_templates import Template, TemplateProblem
from workers.contract.stack.tool_templates import MARKS

NAME, ARGUMENT, VALUE, RESULT = "tool_name_a8f3", "tool_arg_key_b9d4", "tool_arg_val_d6e7", "tool_content_c4f9"
"""Unique strings: if one is missing from the output, the template has dropped that part."""
PROMPT = {"role": "user", "content": "hi"}
TOOL = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "A tool.",
        "parameters": {"type": "object", "properties": {ARGUMENT: {"type": "string"}}, "required": [ARGUMENT]},
    },
}


def run(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Examine the `folder` of a datasets.Tokenizer -> {"sha256": of the template's text or "", "lacks": the missing
    parts, "keeps_prefix": whether a result leaves the text before it unchanged, "parses": whether the tokenizer defines
    how to parse calls, "in_tags": whether calls are JSON in <tool_call>, in turns of ChatML, "marks": those of MARKS in
    the text, "problem": str}."""
    findings: dict[str, Any] = {
        "sha256": "", "lacks": [], "keeps_prefix": False, "parses": False, "in_tags": False, "marks": [], "problem": ""
    }  # fmt: skip
    try:
        config = json_of(folder / CONFIG)
        source = template_of(folder, config)
        findings["parses"] = any(config.get(name) for name in ("response_template", "response_schema"))
        if not source:
            return findings | {"problem": "The model has no chat template."}
        findings["sha256"] = hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()
        findings["marks"] = [mark for mark in MARKS if mark in source]
        return findings | _tool_support(Template(source, special_of(config)))
    except TemplateProblem as error:
        return findings | {"problem": str(error)}


def _tool_support(template: Template) -> dict[str, Any]:
    with_call, problem = _render_all(template, {ARGUMENT: VALUE})
    if problem:  # some templates accept the arguments only as a string
        with_call, problem = _render_all(template, f'{{"{ARGUMENT}": "{VALUE}"}}')
    if problem:
        return {"lacks": ["calls", "results"], "problem": problem}
    up_to_call, up_to_result, with_tool = with_call
    is_shown_by_part = {
        "tools": NAME in with_tool,
        "calls": all(text in up_to_call for text in (NAME, ARGUMENT, VALUE)),
        "results": RESULT in up_to_result,
    }
    call_json = up_to_call.partition("<tool_call>")[2].partition("</tool_call>")[0]
    return {
        "lacks": [name for name, is_shown in is_shown_by_part.items() if not is_shown],
        "keeps_prefix": up_to_result.startswith(up_to_call),
        "in_tags": "<|im_start|>assistant\n" in up_to_call and '"name"' in call_json and '"arguments"' in call_json,
    }


def _render_all(template: Template, arguments: Any) -> tuple[tuple[str, str, str], str]:
    """Return ((text up to a call, text up to its result, text of a prompt with a tool), the first problem or "")."""
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": NAME, "arguments": arguments}}],
    }
    result = {"role": "tool", "name": NAME, "content": RESULT}
    up_to_call = template.conversation([PROMPT, call], generation=False)
    up_to_result = template.conversation([PROMPT, call, result])
    with_tool = template.conversation([PROMPT], tools=[TOOL])
    for text in (up_to_call, up_to_result, with_tool):
        if isinstance(text, TemplateProblem):
            return ("", "", ""), str(text)
    return (str(up_to_call), str(up_to_result), str(with_tool)), ""
