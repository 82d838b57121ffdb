"""Generation by a served model: requests, results, and what every engine offers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from workers.contract.reports.chat import Ask, Finish, Sampling
from workers.trainer.jobs import tool_calls

POLL_S = 0.1
LOWEST_LOGPROB = -9999.0
"""Replaces minus infinity, which JSON can't hold."""


class GenerationError(Exception):
    """The request can't be answered; the message is for its sender."""


@dataclass(frozen=True)
class GenerationRequest:
    ask: Ask
    sampling: Sampling
    stop: tuple[str, ...] = ()
    """Texts that end the answer and don't belong to it."""
    tokens: tuple[int, ...] = ()
    """Token ids of the prompt, in place of text."""


@dataclass(frozen=True)
class GenerationResult:
    finish: Finish
    tokens: int
    prompt_tokens: int


@dataclass(frozen=True)
class PromptScores:
    """A prompt's tokens, each with its log-probability given those before it; the first has none."""

    tokens: tuple[str, ...]
    logprobs: tuple[float | None, ...]
    top: tuple[dict[str, float] | None, ...]
    """The most probable tokens at each position, and the prompt's own."""
    further: bool
    """True if the last token is not the prompt's but the model's continuation."""


class ModelEngine(Protocol):
    """Loaded models that generate."""

    name: str
    models: tuple[str, ...]
    template: bool
    """True if the tokenizer has a chat template; without one, messages are joined as plain text."""
    context: int | None
    """Tokens of prompt and answer together."""
    at_once: int
    """Answers generated concurrently."""

    def turn(self, ended: Callable[[], object]) -> contextlib.AbstractContextManager[None]:
        """Wait for a free slot. Raises GenerationError if `ended` comes first."""

    def answer(
        self, request: GenerationRequest, send: Callable[[str], None], ended: Callable[[], bool]
    ) -> GenerationResult:
        """Generate, passing each piece of text to `send`; stop early once `ended`. Raises GenerationError."""

    def answers(
        self, requests: Sequence[GenerationRequest], ended: Callable[[], bool]
    ) -> list[tuple[str, GenerationResult]]:
        """Generate whole answers to prompts with one model and one sampling. Raises GenerationError."""

    def score(self, requests: Sequence[GenerationRequest], top: int, ended: Callable[[], bool]) -> list[PromptScores]:
        """Score prompts with one model, each with one further token if max_tokens is 1. Raises GenerationError."""

    def close(self) -> None: ...


@dataclass
class Usage:
    """When a served model was last used, by chat or by HTTP."""

    last_used: float = field(default_factory=time.monotonic)
    active: int = 0
    """Answers being generated."""
    requests: int = 0
    """HTTP requests answered."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        with self._lock:
            self.active += 1
        try:
            yield
        finally:
            with self._lock:
                self.active -= 1
                self.last_used = time.monotonic()

    def touch(self) -> None:
        with self._lock:
            self.last_used = time.monotonic()

    def count_request(self) -> None:
        with self._lock:
            self.requests += 1

    def idle_for(self, seconds: float) -> bool:
        with self._lock:
            return not self.active and time.monotonic() - self.last_used >= seconds


class Slots:
    """Limits the answers that are generated concurrently."""

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)

    @contextlib.contextmanager
    def turn(self, ended: Callable[[], object]) -> Iterator[None]:
        while not self._free.acquire(timeout=POLL_S):
            if ended():
                raise GenerationError("The answer was cancelled before it began.")
        try:
            yield
        finally:
            self._free.release()


def prompt_ids(tokenizer: Any, request: GenerationRequest) -> list[int]:
    """Return the prompt's token ids. Raises GenerationError if the chat template rejects the messages."""
    if request.tokens:
        return list(request.tokens)
    ask = request.ask
    if not ask.messages:
        return list(tokenizer(ask.plain)["input_ids"])
    if not tokenizer.chat_template and not ask.tools:
        return list(tokenizer("\n\n".join(str(message["content"]) for message in ask.messages))["input_ids"])
    if ask.tools and (why := tool_calls.problem(str(tokenizer.chat_template))):
        raise GenerationError(why)
    messages, tools = [dict(message) for message in ask.messages], [dict(tool) for tool in ask.tools] or None
    try:
        text = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates are the model's own code: Jinja's errors, and whatever they raise
        why = " ".join(str(error).split())[:300]
        raise GenerationError(f"The model's chat template rejects this chat: {why}") from error
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def completion_limit(prompt_tokens: int, context: int | None, requested: int) -> int:
    """Return how many tokens the completion may have. Raises GenerationError if the context has no room."""
    if not prompt_tokens:
        raise GenerationError("The prompt is empty.")
    if context is None:
        return requested
    if prompt_tokens >= context:
        raise GenerationError(
            f"The chat has {prompt_tokens:,} tokens, and this model takes {context:,} with its answer: "
            "send a shorter message, or begin a new chat."
        )
    return min(requested, context - prompt_tokens)


def first_stop(text: str, stops: tuple[str, ...]) -> int | None:
    """Return where the first stop text begins."""
    return min((place for stop in stops if (place := text.find(stop)) >= 0), default=None)
