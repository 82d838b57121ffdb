"""A chat template in jinja2's immutable sandbox, as transformers sets it up, and with limits."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
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

from controlplane.datasets.reader.excerpts import visible

LONGEST_TEMPLATE = 2**20
LONGEST_TEXT = 2**24
"""Characters that a template may write."""
SECONDS = 5.0
"""Of processor time, for one prompt."""
LARGEST = 2**22
"""Items or characters of what a template multiplies."""
DIGITS = 2**14
"""Bits of a number that a template calculates."""
_WIDE = re.compile(r"%[^a-zA-Z%]*(?:\*|\d{5})")


class TemplateProblem(Exception):
    """The template or the tokenizer can't be used for this; the message is for people."""


class Template:
    """Raises TemplateProblem for a text that is no template."""

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        if len(source) > LONGEST_TEMPLATE:
            raise TemplateProblem(f"The chat template is longer than {LONGEST_TEMPLATE:,} characters.")
        self._special = dict(special)
        with _in_words("can't be read"):
            self._template = _environment().from_string(source)

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The text with the beginning of the assistant's turn. Raises TemplateProblem."""
        values = {
            **self._special,
            "messages": [dict(message) for message in messages],
            "tools": None,
            "documents": None,
            "add_generation_prompt": True,
        }
        written: list[str] = []
        length = 0
        with _in_words("can't be used with these messages"):
            for piece in self._template.generate(values):
                length += len(piece)
                if length > LONGEST_TEXT:
                    raise TemplateProblem(f"The chat template writes more than {LONGEST_TEXT:,} characters.")
                written.append(piece)
            return "".join(written)


class _Environment(ImmutableSandboxedEnvironment):
    """Numbers and repetitions are looked at before they are made: neither can be interrupted."""

    intercepted_binops = frozenset(("*", "**", "%"))

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%":
            if isinstance(left, str) and _WIDE.search(left):
                raise SecurityError("the text would be formatted to too great a width")
        elif _size(operator, left, right) > LARGEST:
            raise SecurityError(f"the result of {operator} would be too large")
        return super().call_binop(context, operator, left, right)


class _Generation(jinja2.ext.Extension):
    """{% generation %} … {% endgeneration %} marks what an assistant wrote; the text is the same without the marks."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def _size(operator: str, left: Any, right: Any) -> int:
    """Of the result, in items; numbers by their bits, so that the same limit is far above any that is of use."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * max(right, 0) if operator == "**" else left.bit_length() + right.bit_length()
        return LARGEST + 1 if bits > DIGITS else 0
    for many, times in ((left, right), (right, left)):
        if isinstance(times, int) and hasattr(many, "__len__"):
            return len(many) * max(times, 0)
    return 0


def _environment() -> _Environment:
    made = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = _tojson
    made.globals["raise_exception"] = _raise_exception
    made.globals["strftime_now"] = _strftime_now
    return made


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is: jinja2's own is for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class _Refusal(TemplateError):
    """What the template's author says of these messages."""


def _raise_exception(message: object) -> None:
    raise _Refusal(str(message))


def _strftime_now(format: str) -> str:  # noqa: A002 -- as transformers names it
    return datetime.now().strftime(format)


class _TooLong(BaseException):
    """No Exception: nothing between a template and its caller catches it."""


@contextmanager
def _in_words(what: str) -> Iterator[None]:
    """Every end of a template as a TemplateProblem, and an end after SECONDS."""

    def end(number: int, frame: FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    except _TooLong:
        raise TemplateProblem(f"The chat template takes longer than {SECONDS:g} seconds.") from None
    except _Refusal as error:
        raise TemplateProblem(f"The chat template refuses these messages: {_said(error)}") from None
    except TemplateSyntaxError as error:
        raise TemplateProblem(f"The chat template {what}: {_said(error)} (its line {error.lineno})") from None
    except SecurityError as error:
        raise TemplateProblem(f"The chat template does what is not allowed: {_said(error)}") from None
    except MemoryError:
        raise TemplateProblem("The chat template takes more memory than is allowed.") from None
    except RecursionError:
        raise TemplateProblem("The chat template is nested too deeply.") from None
    except TemplateProblem:
        raise
    except Exception as error:
        # Whatever Python can raise: it is the template's code that ran.
        raise TemplateProblem(f"The chat template {what}: {type(error).__name__}, {_said(error)}") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _said(error: BaseException) -> str:
    return visible(str(error))[:300].rstrip(".") + "."
