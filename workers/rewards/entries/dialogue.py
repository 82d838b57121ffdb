"""Rewards for tools and turns: valid calls, the number of turns, and the answer in the results.

A completion of several messages has them as `turns`, in the form of chat templates: {"role": "assistant", "content",
"tool_calls": [{"function": {"name", "arguments"}}]} and {"role": "tool", "content"}. A call that the chat template's
parser didn't understand is still text: <tool_call>{"name": …, "arguments": {…}}</tool_call>, as Qwen and Hermes write
it.
"""

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workers.rewards import schema
from workers.rewards.entries.choice import right_answers, words
from workers.rewards.entries.tags import names, names_problem
from workers.rewards.entries.text import bounds_problem, within
from workers.rewards.parameters import Params, param
from workers.rewards.reward import Completion, Example, Reward

MAX_CALLS = 1_000
_SEARCHED = (
    {"role": "assistant", "content": "", "tool_calls": [
        {"function": {"name": "search", "arguments": {"query": "architect of the Eiffel Tower"}}}]},
    {"role": "tool", "content": "It was designed by Stephen Sauvestre."},
    {"role": "assistant", "content": "Stephen Sauvestre."},
)  # fmt: skip


@dataclass(frozen=True)
class ToolCallValidParams(Params):
    tools: str = param(
        "",
        'The tools as JSON: a list of {"name", "parameters"}, where parameters is a JSON Schema. Empty: any name and '
        "any arguments will do.",
        longest=schema.LONGEST_SCHEMA,
        widget="json",
        rule=lambda text: text.strip() and _tools_problem(text),
    )
    tag: str = param("tool_call", "Name of the tag around a call that is text.", rule=names_problem)
    needs_call: bool = param(True, "A completion without a call scores 0; otherwise it doesn't count.")
    partial: bool = param(False, "Give the share of calls that are right instead of all or nothing.")


@dataclass(frozen=True)
class TurnCountParams(Params):
    counted: str = param(
        "turns", "What is counted: the model's messages, or its tool calls.", choices=("turns", "calls")
    )
    minimum: int = param(1, "Below this the score falls evenly to 0 for none.", min=0, max=1_000)
    target: int = param(4, "Up to this many the score is 1.", min=0, max=1_000)
    maximum: int = param(8, "From this many on the score is 0; in between it falls evenly.", min=1, max=1_000)

    def problem(self) -> str | None:
        return bounds_problem(self.minimum, self.target, self.maximum)


@dataclass(frozen=True)
class AnswerInResultsParams(Params):
    results: str = param(
        "tool messages",
        "What a result is. Text in tags can be written by the model itself, so choose it only where your loop puts it "
        "there.",
        choices=("tool messages", "tagged text"),
    )
    tags: str = param("information, result", "Names of the tags of tagged text, with commas.", rule=names_problem)
    marker: str = param("####", "The text before the answer in the dataset's answer.")


def tool_call_valid(completion: Completion, row: Mapping[str, Any], params: ToolCallValidParams) -> float | None:
    """Return 0 to 1, only 0 and 1 unless `partial`. 1: every call has a tool's name and arguments that fit it. 0: one
    doesn't (invalid JSON, an unknown tool, wrong arguments, an unclosed tag), or there is no call. For models that are
    learning to call tools; beside it, a reward on what the calls are for."""
    calls = list(_calls(completion, params.tag))[:MAX_CALLS]
    if not calls:
        return 0.0 if params.needs_call else None
    right = sum(call is not None and _is_right(call, params.tools) for call in calls)
    return right / len(calls) if params.partial else float(right == len(calls))


def turn_count(completion: Completion, row: Mapping[str, Any], params: TurnCountParams) -> float:
    """Return 0 to 1. 1: from `minimum` up to `target` turns (or calls). 0: `maximum` and more, or none where there is a
    minimum. So that a model looks things up, and comes to an end."""
    if params.counted == "calls":
        count = sum(1 for _ in _calls(completion, "tool_call"))
    else:
        count = sum(turn.get("role") == "assistant" for turn in completion.turns) or 1
    return within(count, params.minimum, params.target, params.maximum)


def answer_in_results(completion: Completion, row: Mapping[str, Any], params: AnswerInResultsParams) -> float | None:
    """Return 0 or 1. 1: the dataset's answer (one of them, if several) is in what the tools returned, word for word
    except for case, punctuation and articles. 0: it isn't, or nothing was returned. Rows without an answer don't count.
    For search: it tells good queries from lucky guesses, as MT-GRPO's turn rewards do (arXiv:2505.11821). An answer of
    one digit occurs in nearly every result."""
    phrases = [" ".join(words(gold)) for gold in right_answers(row, params.marker)]
    phrases = [phrase for phrase in phrases if phrase]
    if not phrases:
        return None
    return float(any(_holds(result, phrases) for result in _results(completion, params)))


def _holds(result: str, phrases: list[str]) -> bool:
    folded = result.casefold()  # splitting a page of results into words is only worth it if all words occur
    close = [phrase for phrase in phrases if all(word in folded for word in phrase.split())]
    plain = f" {' '.join(words(result))} " if close else ""
    return any(f" {phrase} " in plain for phrase in close)


def _calls(completion: Completion, tag: str) -> Iterator[Mapping[str, Any] | None]:
    """Yield each call as {"name", "arguments"}; None for an unreadable one."""
    for turn in completion.turns:
        if turn.get("role") == "assistant":
            calls = turn.get("tool_calls")
            yield from (_plain(call) for call in (calls if isinstance(calls, list | tuple) else ()))
            yield from _written(_text(turn), tag)
    if not completion.turns:
        yield from _written(completion.text, tag)


def _written(text: str, tag: str) -> Iterator[Mapping[str, Any] | None]:
    """Yield the calls in a text; an unclosed or unopened tag counts as unreadable."""
    opened, closed = f"<{tag}>", f"</{tag}>"
    before, *pieces = text.split(opened)
    if closed in before:
        yield None
    for piece in pieces:
        inside, closing, after = piece.partition(closed)
        yield _plain(schema.parsed(inside)) if closing and closed not in after else None


def _plain(call: Any) -> Mapping[str, Any] | None:
    if isinstance(call, dict) and isinstance(call.get("function"), dict):
        call = call["function"]
    if not isinstance(call, dict) or not isinstance(call.get("name"), str) or not call["name"]:
        return None
    arguments = call.get("arguments", {})
    if isinstance(arguments, str):  # OpenAI's form: JSON in a text
        arguments = schema.parsed(arguments)
    return {"name": call["name"], "arguments": arguments} if isinstance(arguments, dict) else None


def _is_right(call: Mapping[str, Any], tools: str) -> bool:
    if not tools.strip():
        return True
    arguments_schema = _schemas(tools).get(call["name"])
    return arguments_schema is not None and schema.fits(call["arguments"], arguments_schema)


@functools.lru_cache(maxsize=64)
def _schemas(tools: str) -> dict[str, str]:
    """Return each tool's argument schema by name. Raises ValueError if one is invalid."""
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
                inside, closing, _ = piece.partition(f"</{tag}>")
                yield inside if closing else ""


def _text(turn: Mapping[str, Any]) -> str:
    """Return a message's text: a string, or the text parts of a list."""
    content = turn.get("content")
    if isinstance(content, list | tuple):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return "" if content is None else str(content)


REWARDS = (
    Reward(
        key="tool_call_valid",
        title="Valid tool calls",
        help="1 when every tool call can be read, names a tool, and has arguments that fit it.",
        whole=tool_call_valid,
        params=ToolCallValidParams,
        low="A call that can't be carried out, or none at all.",
        high="Every call can be carried out.",
        use="For models that are learning to call tools, beside a reward on what the calls are for. In a run "
        "without an environment calls are judged as they are written, and none is carried out.",
        examples=(
            Example("<tool_call>{\"name\": \"search\", \"arguments\": {\"query\": \"Eiffel\"}}</tool_call>", 1.0,
                    why="It can be read, and has a name and arguments."),
            Example("<tool_call>search(Eiffel)</tool_call>", 0.0, why="The tag's content isn't JSON."),
            Example("Stephen Sauvestre.", 1.0, turns=_SEARCHED, why="Its one call was understood."),
        ),
    ),
    Reward(
        key="turn_count",
        title="Number of turns",
        help="1 up to a number of turns (or tool calls), falling evenly to 0 at a maximum.",
        whole=turn_count,
        params=TurnCountParams,
        low="As many as the maximum or more, or none where there is a minimum.",
        high="Between the minimum and the target.",
        use="So that a model looks things up (a minimum of calls) and comes to an end (a target). In a run without "
        "an environment every completion is one turn.",
        examples=(
            Example("Stephen Sauvestre.", 1.0, turns=_SEARCHED, why="Two turns of the model; four are fine."),
            Example("I know it: Gustave Eiffel.", 0.0, params={"counted": "calls"}, why="It called nothing."),
        ),
    ),
    Reward(
        key="answer_in_results",
        title="Answer in the results",
        help="1 when the dataset's answer is in what the tools returned.",
        whole=answer_in_results,
        params=AnswerInResultsParams,
        needs=("answer",),
        low="No result holds the answer, or there are no results.",
        high="A result holds it, word for word.",
        use="For search: it rewards the query that found the answer, whatever the model then makes of it. Let it "
        "score each turn, and the turn with the good query gets the credit. In a run without an environment there are "
        "no tool messages, and its score is 0.",
        examples=(
            Example("Stephen Sauvestre.", 1.0, row={"answer": "Stephen Sauvestre"}, turns=_SEARCHED,
                    why="The search's result names him."),
            Example("Gustave Eiffel.", 0.0, row={"answer": "Gustave Eiffel"}, turns=_SEARCHED,
                    why="The model says so, no result does."),
        ),
    ),
)  # fmt: skip
