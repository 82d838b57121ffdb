"""Chat templates in jinja2's immutable sandbox, which is set up as in transformers, with limits."""

import json
import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import FrameType
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from controlplane.catalogue.datasets.reader.excerpts import visible

MAX_TEMPLATE_CHARACTERS = 2**20
MAX_OUTPUT_CHARACTERS = 2**24
"""Maximum number of characters that a template may write."""
CPU_SECONDS = 5.0
"""CPU time limit for one prompt."""
MAX_ITEMS = 2**22
"""Maximum number of items or characters that a multiplication in a template may produce."""
MAX_BITS = 2**14
"""Maximum number of bits of an integer that a template may compute."""
_DICT_ATTRIBUTES = frozenset(dir(dict))
_WIDE = re.compile(r"%[^a-zA-Z%]*(?:\*|\d{5})")


class TemplateProblem(Exception):
    """Problem that makes a chat template or tokenizer unusable, with a message for people."""


class Template:
    """Chat template. Raises TemplateProblem if its source is invalid."""

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        if len(source) > MAX_TEMPLATE_CHARACTERS:
            raise TemplateProblem(f"The chat template is longer than {MAX_TEMPLATE_CHARACTERS:,} characters.")
        self._special = dict(special)
        with _limited():
            try:
                self._template = _environment().from_string(source)
            except (Exception, _TimeLimitExceeded) as error:
                raise _explain(error, "can't be read") from None

    def texts(self, prompts: Iterable[Sequence[Mapping[str, str]]]) -> list[str | TemplateProblem]:
        """Render each prompt's messages up to the start of the assistant's turn, or return a problem in its place."""
        texts: list[str | TemplateProblem] = []
        with _limited():
            for messages in prompts:
                signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS, CPU_SECONDS)
                try:
                    texts.append(self._text(messages))
                except (Exception, _TimeLimitExceeded) as error:  # the template's code can raise anything
                    texts.append(_explain(error, "can't be used with these messages"))
        return texts

    def conversation(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Any] | None = None, generation: bool = True
    ) -> str | TemplateProblem:
        """Render a conversation with tools, or return a problem. `generation` adds the start of the next turn."""
        with _limited():
            try:
                return self._text(messages, tools, generation=generation)
            except (Exception, _TimeLimitExceeded) as error:
                return _explain(error, "can't be used with tools")

    def _text(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None, *, generation: bool = True
    ) -> str:
        values = {
            **self._special,
            "messages": [dict(message) for message in messages],
            "tools": None if tools is None else [dict(tool) for tool in tools],
            "documents": None,
            "add_generation_prompt": generation,
        }
        pieces: list[str] = []
        length = 0
        for piece in self._template.generate(values):
            length += len(piece)
            if length > MAX_OUTPUT_CHARACTERS:
                raise TemplateProblem(f"The chat template writes more than {MAX_OUTPUT_CHARACTERS:,} characters.")
            pieces.append(piece)
        return "".join(pieces)


class _Environment(ImmutableSandboxedEnvironment):
    """Sandbox that checks products and repetitions before they are computed, since neither can be interrupted."""

    intercepted_binops = frozenset(("*", "**", "%"))

    def call_binop(self, context: jinja2.runtime.Context, operator: str, first: Any, second: Any) -> Any:
        if operator == "%":
            if isinstance(first, str) and _WIDE.search(first):
                raise SecurityError("the text would be formatted to too great a width")
        elif _size(operator, first, second) > MAX_ITEMS:
            raise SecurityError(f"the result of {operator} would be too large")
        return super().call_binop(context, operator, first, second)

    def getattr(self, obj: Any, attribute: str) -> Any:
        if type(obj) is dict and attribute in obj and attribute not in _DICT_ATTRIBUTES:
            return obj[attribute]  # shortcut for the sandbox's result after an AttributeError
        return super().getattr(obj, attribute)


class _Generation(jinja2.ext.Extension):
    """Support for {% generation %} … {% endgeneration %}, which mark an assistant's text and are ignored."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def _size(operator: str, first: Any, second: Any) -> int:
    """Estimate the number of items in the result; for integers, 0 or (above MAX_BITS) more than MAX_ITEMS."""
    if isinstance(first, int) and isinstance(second, int):
        bits = first.bit_length() * max(second, 0) if operator == "**" else first.bit_length() + second.bit_length()
        return MAX_ITEMS + 1 if bits > MAX_BITS else 0
    for sequence, factor in ((first, second), (second, first)):
        if isinstance(factor, int) and hasattr(sequence, "__len__"):
            return len(sequence) * max(factor, 0)
    return 0


def _environment() -> _Environment:
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write plain JSON, since jinja2's own filter escapes it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class _TemplateRefusal(TemplateError):
    """Error that the template itself raises for some messages."""


def _raise_exception(message: object) -> None:
    raise _TemplateRefusal(str(message))


def _strftime_now(format: str) -> str:  # noqa: A002 -- as transformers names it
    return datetime.now().strftime(format)


class _TimeLimitExceeded(BaseException):
    """Signal that a template took too long. It is a BaseException so that no code below the caller catches it."""


@contextmanager
def _limited() -> Iterator[None]:
    """Raise _TimeLimitExceeded in the block after CPU_SECONDS, unless the timer is set again before that."""

    def end(number: int, frame: FrameType | None) -> None:
        # Exceptions in finalizers are swallowed, so the timer's next signal ends the template.
        if frame is None or frame.f_globals.get("__name__") != "weakref":
            raise _TimeLimitExceeded

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _explain(error: BaseException, failure: str) -> TemplateProblem:
    """Convert an error to a problem. `failure` says what the template can't do, such as “can't be read”."""
    match error:
        case TemplateProblem():
            return error
        case _TimeLimitExceeded():
            why = f"takes longer than {CPU_SECONDS:g} seconds."
        case _TemplateRefusal():
            why = f"refuses these messages: {_message(error)}"
        case TemplateSyntaxError():
            why = f"{failure}: {_message(error)} (line {error.lineno})"
        case SecurityError():
            why = f"does something forbidden: {_message(error)}"
        case MemoryError():
            why = "takes more memory than is allowed."
        case RecursionError():
            why = "is nested too deeply."
        case _:
            why = f"{failure}: {type(error).__name__}, {_message(error)}"
    return TemplateProblem(f"The chat template {why}")


def _message(error: BaseException) -> str:
    return visible(str(error))[:300].rstrip(".") + "."
