"""Rewards for tools and turns: valid calls, the number of turns, and the answer in the results.

The messages of a completion are its `turns`, in the format of chat templates: {"role": "assistant", "content",
"tool_calls": [{"function": {"name", "arguments"}}]} and {"role": "tool", "content"}. A call that the chat template's
parser didn't understand is still text, such as <tool_call>{"name": …, "arguments": {…}}</tool_call> from Qwen and
Hermes.
"""

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workers.rewards import schema
from workers.rewards.entries.choice import words
from workers.rewards.entries.tags import names, names_problem
from workers.rewards.entries.text import bounds_problem, ramp_score
from workers.rewards.extract import right_answers
from workers.rewards.parameters import Params, param
from workers.rewards.reward import Completion, Example, Reward

MAX_CALLS = 1_000
_SEARCH_TURNS = (
    {"role": "assistant", "content": "", "tool_calls": [
        {"function": {"name": "search", "arguments": {"query": "architect of the Eiffel Tower"}}}]},
    {"role": "tool", "content": "It was designed by Stephen Sauvestre."},
    {"role": "assistant", "content": "Stephen Sauvestre."},
)  # fmt: skip


@dataclass(frozen=True)
class ToolCallValidParams(Params):
    tools: str = param(
        "",
        'The tools as JSON: a list of {"name", "parameters"}, where parameters is a JSON Schema. If empty, any name '
        "and any arguments are accepted.",
        longest=schema.MAX_SCHEMA_LENGTH,
        widget="json",
        rule=lambda text: text.strip() and _tools_problem(text),
    )
    tag: str = param("tool_call", "Name of the tag around a call that is written as text.", rule=names_problem)
    needs_call: bool = param(True, "Score a completion without a call 0; otherwise it has no score.")
    partial: bool = param(False, "Score the share of valid calls instead of all or nothing.")


@dataclass(frozen=True)
class TurnCountParams(Params):
    counted: str = param("turns", "What to count: the model's messages or its tool calls.", choices=("turns", "calls"))
    minimum: int = param(1, "Below this number the score falls linearly to 0.", min=0, max=1_000)
    target: int = param(4, "Up to this number the score is 1.", min=0, max=1_000)
    maximum: int = param(8, "From this number on the score is 0; from the target it falls linearly.", min=1, max=1_000)

    def problem(self) -> str | None:
        return bounds_problem(self.minimum, self.target, self.maximum)


@dataclass(frozen=True)
class AnswerInResultsParams(Params):
    results: str = param(
        "tool messages",
        "What a result is. The model itself can write tagged text, so choose that only if your own loop inserts the "
        "results that way.",
        choices=("tool messages", "tagged text"),
    )
    tags: str = param(
        "information, result", "Comma-separated names of the tags around tagged text.", rule=names_problem
    )
    marker: str = param("####", "The text before the answer in the dataset's answer.")


def tool_call_valid(completion: Completion, row: Mapping[str, Any], params: ToolCallValidParams) -> float | None:
    """Return 1 if every call names a tool and has arguments that fit it, or 0 if a call is invalid (invalid JSON, an
    unknown tool, wrong arguments, an unclosed tag) or there is none; with `partial`, return the share of valid calls.
    Without a call, return None unless `needs_call`."""
    calls = list(_calls(completion, params.tag))[:MAX_CALLS]
    if not calls:
        return 0.0 if params.needs_call else None
    valid_count = sum(call is not None and _is_valid(call, params.tools) for call in calls)
    return valid_count / len(calls) if params.partial else float(valid_count == len(calls))


def turn_count(completion: Completion, row: Mapping[str, Any], params: TurnCountParams) -> float:
    """Return 1 for `minimum` to `target` turns (or calls), falling linearly to 0 at `maximum` and, if there is a
    minimum, at zero."""
    if params.counted == "calls":
        count = sum(1 for _ in _calls(completion, "tool_call"))
    else:
        count = sum(turn.get("role") == "assistant" for turn in completion.turns) or 1
    return ramp_score(count, params.minimum, params.target, params.maximum)


def answer_in_results(completion: Completion, row: Mapping[str, Any], params: AnswerInResultsParams) -> float | None:
    """Return 1 if the tools returned the dataset's answer (or one of several), ignoring case, punctuation and articles,
    or 0 if they didn't. Return None if the row has no answer. Use this for search: it distinguishes good queries from
    lucky guesses, like MT-GRPO's turn rewards (arXiv:2505.11821). One-digit answers occur in nearly every result."""
    phrases = [" ".join(words(gold)) for gold in right_answers(row, params.marker)]
    phrases = [phrase for phrase in phrases if phrase]
    if not phrases:
        return None
    return float(any(_contains_phrase(result, phrases) for result in _results(completion, params)))


def _contains_phrase(result: str, phrases: list[str]) -> bool:
    folded_result = (
        result.casefold()
    )  # splitting a page of results into words is worth it only if all words of a phrase occur
    candidates = [phrase for phrase in phrases if all(word in folded_result for word in phrase.split())]
    result_words = f" {' '.join(words(result))} " if candidates else ""
    return any(f" {phrase} " in result_words for phrase in candidates)


def _calls(completion: Completion, tag: str) -> Iterator[Mapping[str, Any] | None]:
    """Yield each call as {"name", "arguments"}, or None for one that can't be parsed."""
    for turn in completion.turns:
        if turn.get("role") == "assistant":
            calls = turn.get("tool_calls")
            yield from (_plain_call(call) for call in (calls if isinstance(calls, list | tuple) else ()))
            yield from _calls_in_text(_text(turn), tag)
    if not completion.turns:
        yield from _calls_in_text(completion.text, tag)


def _calls_in_text(text: str, tag: str) -> Iterator[Mapping[str, Any] | None]:
    """Yield the calls written in a text, with None for an invalid call and for an unclosed or unopened tag."""
    open_tag, close_tag = f"<{tag}>", f"</{tag}>"
    before, *pieces = text.split(open_tag)
    if close_tag in before:
        yield None
    for piece in pieces:
        content, closing, after = piece.partition(close_tag)
        yield _plain_call(schema.parsed(content)) if closing and close_tag not in after else None


def _plain_call(call: Any) -> Mapping[str, Any] | None:
    if isinstance(call, dict) and isinstance(call.get("function"), dict):
        call = call["function"]
    if not isinstance(call, dict) or not isinstance(call.get("name"), str) or not call["name"]:
        return None
    arguments = call.get("arguments", {})
    if isinstance(arguments, str):  # OpenAI's format: JSON in a string
        arguments = schema.parsed(arguments)
    return {"name": call["name"], "arguments": arguments} if isinstance(arguments, dict) else None


def _is_valid(call: Mapping[str, Any], tools: str) -> bool:
    if not tools.strip():
        return True
    arguments_schema = _schemas(tools).get(call["name"])
    return arguments_schema is not None and schema.fits(call["arguments"], arguments_schema)


@functools.lru_cache(maxsize=64)
def _schemas(tools: str) -> dict[str, str]:
    """Return each tool's argument schema by name. Raises ValueError for an entry that isn't a tool."""
    entries = schema.parsed(tools)
    schemas = {}
    for tool in entries if isinstance(entries, list) else [None]:
        tool = tool["function"] if isinstance(tool, dict) and isinstance(tool.get("function"), dict) else tool
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str) or not tool["name"]:
            raise ValueError('must be a list of {"name", "parameters"}')
        schemas[tool["name"]] = json.dumps(tool.get("parameters", {}))
    return schemas


def _tools_problem(tools: str) -> str:
    if not schema.is_json(schema.parsed(tools)):
        return schema.problem(tools)
    try:
        schemas = _schemas(tools)
    except ValueError as error:
        return str(error)
    if not schemas:
        return "must name a tool"
    return next(
        (f"{name}'s parameters: {message}" for name, text in schemas.items() if (message := schema.problem(text))), ""
    )


def _results(completion: Completion, params: AnswerInResultsParams) -> Iterator[str]:
    if params.results == "tool messages":
        yield from (_text(turn) for turn in completion.turns if turn.get("role") == "tool")
        return
    texts = [_text(turn) for turn in completion.turns] if completion.turns else [completion.text]
    for text in texts:
        for tag in names(params.tags):
            for piece in text.split(f"<{tag}>")[1:]:
                content, closing, _ = piece.partition(f"</{tag}>")
                yield content if closing else ""


def _text(turn: Mapping[str, Any]) -> str:
    content = turn.get("content")
    if isinstance(content, list | tuple):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return "" if content is None else str(content)


REWARDS = (
    Reward(
        key="tool_call_valid",
        title="Valid tool calls",
        help="1 if every tool call can be parsed, names a tool and has arguments that fit it.",
        whole=tool_call_valid,
        params=ToolCallValidParams,
        low="A call that can't be executed, or no call.",
        high="Every call can be executed.",
        use="For models that are learning to call tools, together with a reward for what the calls are for. In a run "
        "without an environment, calls are scored as they are written, and none is executed.",
        examples=(
            Example("<tool_call>{\"name\": \"search\", \"arguments\": {\"query\": \"Eiffel\"}}</tool_call>", 1.0,
                    why="It can be parsed, and has a name and arguments."),
            Example("<tool_call>search(Eiffel)</tool_call>", 0.0, why="The tag's content isn't JSON."),
            Example("Stephen Sauvestre.", 1.0, turns=_SEARCH_TURNS, why="Its one call was parsed."),
        ),
    ),
    Reward(
        key="turn_count",
        title="Number of turns",
        help="1 up to a target number of turns (or tool calls), falling linearly to 0 at a maximum.",
        whole=turn_count,
        params=TurnCountParams,
        low="At or above the maximum, or none if there is a minimum.",
        high="Between the minimum and the target.",
        use="To make a model look things up (a minimum number of calls) and then finish (a target). In a run without "
        "an environment, every completion is one turn.",
        examples=(
            Example("Stephen Sauvestre.", 1.0, turns=_SEARCH_TURNS, why="Two turns of the model; up to four score 1."),
            Example("I know it: Gustave Eiffel.", 0.0, params={"counted": "calls"}, why="It called no tool."),
        ),
    ),
    Reward(
        key="answer_in_results",
        title="Answer in the results",
        help="1 if the tools returned the dataset's answer.",
        whole=answer_in_results,
        params=AnswerInResultsParams,
        needs=("answer",),
        low="No result contains the answer, or there are no results.",
        high="A result contains the answer, word for word.",
        use="For search: it rewards the query that found the answer, whatever the model then does with the result. "
        "Score each turn separately, so that the turn with the good query gets the credit. In a run without an "
        "environment there are no tool messages, so the score is 0.",
        examples=(
            Example("Stephen Sauvestre.", 1.0, row={"answer": "Stephen Sauvestre"}, turns=_SEARCH_TURNS,
                    why="The search result names him."),
            Example("Gustave Eiffel.", 0.0, row={"answer": "Gustave Eiffel"}, turns=_SEARCH_TURNS,
                    why="The model names him, but no result does."),
        ),
    ),
)  # fmt: skip
