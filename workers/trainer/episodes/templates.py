"""The chat template of a run with episodes, which renders tools and results for the model, and parses its calls."""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import trl
from jinja2 import TemplateError
from trl.chat_template_utils import (
    add_response_schema,
    get_training_chat_template,
    parse_response,
    supports_tool_calling,
)

from workers.environments.entry import without_thinking
from workers.trainer.configuration.spec import SpecError
from workers.trainer.episodes.episode import Message

CALLS_IN_TAGS: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}
"""Response template for chat templates that TRL doesn't know and that write calls as JSON in <tool_call>, as most
variants of known ones do."""
_UNREADABLE_CALL_NAME = "tool"
_MAX_CACHED_NAMES = 256
"""Maximum number of tool names whose tokens are cached; the cap matters because models invent names."""
_PARSER_ATTRIBUTES = ("response_template", "response_schema")
_TEMPLATES_FOLDER = Path(trl.__file__).parent / "chat_templates"
_LEADING_TAG = re.compile(r"(?:\(\?:)?(<[^\s<>()\[\]\\]+>)")
"""Pattern that matches a tag at the beginning of a regular expression."""
_TRUNCATION_NOTE = "\n(truncated: the result is longer than {} tokens)"


def template_names() -> list[str]:
    """Return the names of TRL's templates that may replace a model's own."""
    return sorted(path.stem for path in _TEMPLATES_FOLDER.glob("*.jinja") if not path.stem.endswith("_training"))


def choose(
    tokenizer: Any,
    name: str,
    tools: Sequence[Mapping[str, Any]],
    *,
    game: bool,
    arguments: Mapping[str, Any],
    strict: bool = True,
) -> "Chat":
    """Choose a template that can render episodes, and enable the tokenizer to parse calls. `name`: the TRL template to
    use instead of the tokenizer's own, or "". `game`: whether the environment answers messages without calls.
    `arguments`: the run's chat_template_kwargs. `strict`: whether to reject templates that change earlier messages.
    Raises SpecError if there is none."""
    if name:
        if name not in template_names():
            raise SpecError(f"TRL has no chat template {name!r}. Available: {', '.join(template_names())}.")
        tokenizer.chat_template = (_TEMPLATES_FOLDER / f"{name}.jinja").read_text(encoding="utf-8")
    if not tokenizer.chat_template:
        raise SpecError(f"The model has no chat template, but episodes are chats. {_alternatives(tokenizer)}")
    if tools:
        _check_tools(tokenizer)
    training_template: str | None = None
    with contextlib.suppress(ValueError, TypeError, TemplateError):
        training_template = get_training_chat_template(tokenizer)  # leaves earlier messages unchanged
    for template in (None, training_template):
        chat = Chat(tokenizer, template, tools, arguments)
        if chat.can_continue(game=game):
            return chat
    if not strict:
        return Chat(tokenizer, None, tools, arguments)
    reason = "The chat template changes earlier messages once later ones follow, so the tokens of a turn change."
    raise SpecError(f"{reason} {_alternatives(tokenizer)}")


class Chat:
    """A chat template that renders and parses the messages of episodes."""

    def __init__(
        self, tokenizer: Any, template: str | None, tools: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]
    ) -> None:
        """Create the renderer. `template`: the chat template to use; None for the tokenizer's own."""
        self._tokenizer = tokenizer
        self._template = template
        self._tools = [dict(tool) for tool in tools] or None
        self._arguments = dict(arguments)
        self._special = [token for token in tokenizer.all_special_tokens if len(token) > 1]
        self._prefixes: dict[str, list[int]] = {}
        self._opening = _opening_of(tokenizer) if tools else None

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        return self._ids(messages, tools=self._tools, add_generation_prompt=True)

    def parse(self, ids: Sequence[int], before: Sequence[int]) -> Message:
        """Parse the model's message: its text, with its thinking, and its calls. `before`: all tokens before it."""
        try:
            parsed_message = parse_response(self._tokenizer, list(ids), prefix=list(before), tools=self._tools)
        except Exception:  # models may write anything, such as a deeply nested or a truncated call
            parsed_message = {"content": self._tokenizer.decode(ids, skip_special_tokens=True)}
        content = parsed_message.get("content")
        text = content if isinstance(content, str) else json.dumps(content, default=str)
        if parsed_message.get("reasoning_content"):
            text = f"<think>{parsed_message['reasoning_content']}</think>{text}"
        message: Message = {"role": "assistant", "content": text}
        if calls := [
            plain_call
            for call in parsed_message.get("tool_calls") or []
            if (plain_call := _plain_call(call)) is not None
        ]:
            message["tool_calls"] = calls
        return message

    def begins_call(self, ids: Sequence[int]) -> bool:
        """Return whether the model's text contains the beginning of a call outside its thinking."""
        if self._opening is None:
            return False
        return self._opening.search(without_thinking(self._tokenizer.decode(ids))) is not None

    def answer_ids(self, answers: Sequence[Message], *, ended: bool) -> list[int]:
        """Tokenize what comes between two of the model's messages: the answers and the beginning of the next message.
        `ended`: whether the model generated its end of turn; otherwise that comes first. Raises SpecError if the chat
        template changes earlier messages."""
        name = str(answers[0].get("name") or _UNREADABLE_CALL_NAME) if answers[0]["role"] == "tool" else ""
        if len(self._prefixes) > _MAX_CACHED_NAMES:
            self._prefixes.clear()
        if name not in self._prefixes:
            self._prefixes[name] = self._ids(_dummy(name), add_generation_prompt=False)
        prefix = self._prefixes[name]
        all_ids = self._ids([*_dummy(name), *answers], add_generation_prompt=True)
        ends = [index for index, token in enumerate(prefix) if token == self._tokenizer.eos_token_id]
        # Templates that end a turn with the EOS token add a newline, which models don't generate.
        start = ends[-1] + 1 if ends else len(prefix)
        if all_ids[:start] != prefix[:start]:
            raise SpecError("The chat template changes earlier messages once later ones follow.")
        return all_ids[start - 1 if ends and not ended else start :]

    def can_continue(self, *, game: bool) -> bool:
        """Return whether answers can follow the model's messages."""
        answers = [{"role": "tool", "name": tool["function"]["name"], "content": "a"} for tool in self._tools or ()]
        try:
            for answer in [*answers, *([{"role": "user", "content": "a"}] if game else [])]:
                self.answer_ids([answer], ended=True)
        except (SpecError, TemplateError, TypeError, ValueError):
            return False
        return True

    def shorten(self, text: str, tokens: int) -> str:
        """Truncate a string to at most `tokens` tokens, appending a note if it was longer."""
        text = self.break_special_tokens(text)
        if len(text) <= tokens:  # a token has at least one character
            return text
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return text if len(ids) <= tokens else self._tokenizer.decode(ids[:tokens]) + _TRUNCATION_NOTE.format(tokens)

    def count(self, messages: Sequence[Message], total: int) -> None:
        """Add to each message its share of `total` tokens. The first message's includes the template's own tokens."""
        remaining = total
        for message in messages[1:]:
            tokens = len(self._tokenizer(message["content"], add_special_tokens=False)["input_ids"])
            message["tokens"] = min(remaining, tokens)
            remaining -= message["tokens"]
        messages[0]["tokens"] = remaining

    def with_opening(self, messages: Sequence[Message], opening: str) -> list[Message]:
        if not opening:
            return list(messages)
        last_message = messages[-1]
        content = f"{last_message['content']}{self.break_special_tokens(opening)}"
        return [*messages[:-1], {**last_message, "content": content}]

    def break_special_tokens(self, text: str) -> str:
        """Break special tokens in untrusted text, so that it can't end or begin a message."""
        for token in self._special:
            if token in text:
                text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    def _ids(self, messages: Sequence[Message], **arguments: Any) -> list[int]:
        ids = self._tokenizer.apply_chat_template(
            list(messages),
            tokenize=True,
            chat_template=self._template,
            return_dict=False,
            **arguments,
            **self._arguments,
        )
        return list(ids)


@contextlib.contextmanager
def without_call_parsing(tokenizer: Any) -> Iterator[None]:
    """Make TRL decode each completion as one string while the context is open. TRL's parser would treat several turns
    as one, and may raise."""
    parsers = {name: value for name in _PARSER_ATTRIBUTES if (value := getattr(tokenizer, name, None)) is not None}
    for name in parsers:
        setattr(tokenizer, name, None)
    try:
        yield
    finally:
        for name, value in parsers.items():
            setattr(tokenizer, name, value)


def _opening_of(tokenizer: Any) -> re.Pattern[str] | None:
    """Return a pattern of the beginning of a call, derived from how the tokenizer parses calls, or None if unknown."""
    template, schema = (getattr(tokenizer, name, None) or {} for name in _PARSER_ATTRIBUTES)
    calls = template.get("fields", {}).get("tool_calls", {})
    if "open" in calls:
        return re.compile(re.escape(calls["open"]))
    pattern = calls.get("open_pattern") or schema.get("properties", {}).get("tool_calls", {}).get("x-regex-iterator")
    if not isinstance(pattern, str):
        return None
    tag = _LEADING_TAG.match(pattern.replace("\\|", "|"))
    return re.compile(re.escape(tag[1]) if tag else pattern)


def _dummy(name: str) -> list[Message]:
    """Return the shortest chat that answers can follow. `name`: the called tool, or "" for no call."""
    reply: Message = {"role": "assistant", "content": "" if name else "dummy"}
    if name:
        reply["tool_calls"] = [{"type": "function", "function": {"name": name, "arguments": {}}}]
    return [{"role": "user", "content": "dummy"}, reply]


def _plain_call(call: Any) -> Message | None:
    if not isinstance(call, Mapping):
        return None
    function = call.get("function", call)
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        return None
    try:
        value = function.get("arguments")
        arguments = {} if value in (None, "") else json.loads(json.dumps(value, default=str))
    except (ValueError, RecursionError):
        arguments = None
    return {"type": "function", "function": {"name": function["name"], "arguments": arguments}}


def _check_tools(tokenizer: Any) -> None:
    if not supports_tool_calling(tokenizer):
        raise SpecError(f"The chat template can't render tools and their results. {_alternatives(tokenizer)}")
    if any(getattr(tokenizer, name, None) is not None for name in _PARSER_ATTRIBUTES):
        return
    try:
        add_response_schema(tokenizer)
    except ValueError:
        if not _writes_calls_in_tags(tokenizer):
            reason = "TRL doesn't know the model's chat template, so it can't parse the model's tool calls."
            raise SpecError(f"{reason} {_alternatives(tokenizer)}") from None
        tokenizer.response_template = CALLS_IN_TAGS


def _alternatives(tokenizer: Any) -> str:
    """Return a sentence that lists TRL's templates that can render tools with this tokenizer, starting with those whose
    special tokens the tokenizer has."""
    own_template = tokenizer.chat_template
    preferred_names: list[str] = []
    other_names: list[str] = []
    try:
        for name in template_names():
            tokenizer.chat_template = text = (_TEMPLATES_FOLDER / f"{name}.jinja").read_text(encoding="utf-8")
            try:
                is_usable = supports_tool_calling(tokenizer)
            except Exception:  # a template for another kind of tokenizer may raise anything
                is_usable = False
            if is_usable:
                special_tokens = set(re.findall(r"<\|[a-z_]+\|>", text))
                has_all_tokens = special_tokens and all(
                    len(tokenizer(token, add_special_tokens=False)["input_ids"]) == 1 for token in special_tokens
                )
                (preferred_names if has_all_tokens else other_names).append(name)
    finally:
        tokenizer.chat_template = own_template
    first_choices = (
        f"with special tokens that the tokenizer has: {', '.join(preferred_names)}; others: " if preferred_names else ""
    )
    return f"Choose one of TRL's templates instead ({first_choices}{', '.join(other_names)}), or another model."


def _writes_calls_in_tags(tokenizer: Any) -> bool:
    call = {"type": "function", "function": {"name": "find", "arguments": {"word": "a"}}}
    messages = [{"role": "user", "content": "b"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    try:
        rendered = tokenizer.apply_chat_template(messages, tokenize=False)
    except (TemplateError, TypeError):
        return False
    tag_content = rendered.partition("<tool_call>")[2].partition("</tool_call>")[0]
    return "<|im_start|>assistant\n" in rendered and '"name"' in tag_content and '"arguments"' in tag_content
