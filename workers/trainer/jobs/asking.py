"""What a served model is asked, what an engine is, and what it answers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from workers.contract.reports.chat import Ask, Finish, Sampling
from workers.trainer.jobs import tool_calls

WAITS_S = 0.1
LOWEST = -9999.0
"""In place of the log probability of what can't come: JSON has no infinity."""


class AskError(Exception):
    """This can't be answered; the message is for whoever asked."""


@dataclass(frozen=True)
class Asked:
    ask: Ask
    sampling: Sampling
    stop: tuple[str, ...] = ()
    """Texts that end the answer and don't belong to it."""
    tokens: tuple[int, ...] = ()
    """The prompt, in place of a text."""


@dataclass(frozen=True)
class Answered:
    finish: Finish
    tokens: int
    prompt_tokens: int


@dataclass(frozen=True)
class Scored:
    """A prompt's tokens, each with its log probability after those before it; the first has none."""

    tokens: tuple[str, ...]
    logprobs: tuple[float | None, ...]
    top: tuple[dict[str, float] | None, ...]
    """The most probable tokens at each place, and the prompt's own."""
    further: bool
    """The last token isn't the prompt's: the model goes on with it."""


class Engine(Protocol):
    name: str
    models: tuple[str, ...]
    template: bool
    """Whether the tokenizer has a chat template; without one, messages are asked as plain text."""
    context: int | None
    """Tokens of prompt and answer."""
    at_once: int

    def turn(self, ended: Callable[[], object]) -> contextlib.AbstractContextManager[None]:
        """Wait until there is room for another answer; AskError if `ended` first."""

    def answer(self, asked: Asked, tell: Callable[[str], None], ended: Callable[[], bool]) -> Answered:
        """Answer, telling each piece of text as it comes, and end at once when `ended`. Raises AskError."""

    def answers(self, asked: Sequence[Asked], ended: Callable[[], bool]) -> list[tuple[str, Answered]]:
        """The whole answers to prompts for one model, sampled alike. Raises AskError."""

    def score(self, asked: Sequence[Asked], top: int, ended: Callable[[], bool]) -> list[Scored]:
        """Prompts for one model, each with a further token if max_tokens is 1. Raises AskError."""

    def close(self) -> None: ...


@dataclass
class Use:
    """When the model was last used, by either inlet."""

    at: float = field(default_factory=time.monotonic)
    now: int = 0
    """Answers under way."""
    requests: int = 0
    """HTTP requests answered."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        with self._lock:
            self.now += 1
        try:
            yield
        finally:
            with self._lock:
                self.now -= 1
                self.at = time.monotonic()

    def touch(self) -> None:
        with self._lock:
            self.at = time.monotonic()

    def count_request(self) -> None:
        with self._lock:
            self.requests += 1

    def idle_for(self, seconds: float) -> bool:
        with self._lock:
            return not self.now and time.monotonic() - self.at >= seconds


class Room:
    """Room for so many answers at once."""

    def __init__(self, at_once: int) -> None:
        self._room = threading.Semaphore(at_once)

    @contextlib.contextmanager
    def turn(self, ended: Callable[[], object]) -> Iterator[None]:
        while not self._room.acquire(timeout=WAITS_S):
            if ended():
                raise AskError("The answer was called off before it began.")
        try:
            yield
        finally:
            self._room.release()


def prompt_ids(tokenizer: Any, asked: Asked) -> list[int]:
    """The prompt's tokens. Raises AskError if the chat template refuses the messages."""
    if asked.tokens:
        return list(asked.tokens)
    ask = asked.ask
    if not ask.messages:
        return _ids(tokenizer(ask.plain)["input_ids"])
    if not tokenizer.chat_template and not ask.tools:
        return _ids(tokenizer("\n\n".join(str(message["content"]) for message in ask.messages))["input_ids"])
    if ask.tools and (why := tool_calls.problem(str(tokenizer.chat_template))):
        raise AskError(why)
    messages, tools = [dict(message) for message in ask.messages], [dict(tool) for tool in ask.tools] or None
    try:
        text = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates are the model's own code: Jinja's errors, and whatever they raise
        raise AskError(f"The model's chat template refuses this chat: {' '.join(str(error).split())[:300]}") from error
    return _ids(tokenizer(text, add_special_tokens=False)["input_ids"])


def room_for(tokens: int, context: int | None, wanted: int) -> int:
    """The most tokens that the answer to a prompt of `tokens` may have. Raises AskError if there is no room."""
    if not tokens:
        raise AskError("The prompt is empty.")
    if context is None:
        return wanted
    if tokens >= context:
        raise AskError(
            f"The chat has {tokens:,} tokens, and this model takes {context:,} with its answer: "
            "send a shorter message, or begin a new chat."
        )
    return min(wanted, context - tokens)


def cut_at(text: str, stops: tuple[str, ...]) -> int | None:
    """Where the first stop text begins."""
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return min(places, default=None)


def _ids(value: Any) -> list[int]:
    return [int(token) for token in value]
