"""Generation by a served model: requests, results, and the interface of engines."""

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from workers.contract.reports.chat import Ask, Finish, Sampling
from workers.trainer.jobs import tool_calls

POLL_S = 0.1
MIN_LOGPROB = -9999.0
"""Value used instead of minus infinity, which JSON can't represent."""


class GenerationError(Exception):
    """Raised when a request can't be fulfilled; the message is for its sender."""


@dataclass(frozen=True)
class GenerationRequest:
    ask: Ask
    sampling: Sampling
    stop: tuple[str, ...] = ()
    """Strings that end the answer and are not part of it."""
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class GenerationResult:
    finish: Finish
    tokens: int
    prompt_tokens: int


@dataclass(frozen=True)
class PromptScores:
    """The tokens of a prompt, each with its log-probability given those before it; the first has none."""

    tokens: tuple[str, ...]
    logprobs: tuple[float | None, ...]
    top: tuple[dict[str, float] | None, ...]
    """Log-probabilities of the most probable tokens at each position and of the prompt's own token."""
    extended: bool
    """True if the last token is the model's continuation, not part of the prompt."""


class ModelEngine(ABC):
    """Base class of engines: loaded models that generate."""

    name: str
    at_once: int

    def __init__(self, models: dict[str, Any], tokenizer: Any, context: int | None) -> None:
        self._models, self._tokenizer = models, tokenizer
        self.models = tuple(models)
        self.template = bool(tokenizer.chat_template)
        """True if there is a chat template; otherwise messages are joined as plain text."""
        self.context = context
        """Maximum number of tokens of prompt and answer together."""
        self._slots = threading.Semaphore(self.at_once)

    @contextlib.contextmanager
    def turn(self, has_ended: Callable[[], object]) -> Iterator[None]:
        """Wait for a free slot, and hold it while the context is open. Raises GenerationError if `has_ended` returns
        True before there is one."""
        while not self._slots.acquire(timeout=POLL_S):
            if has_ended():
                raise GenerationError("The answer was cancelled before it began.")
        try:
            yield
        finally:
            self._slots.release()

    @abstractmethod
    def answer(
        self, request: GenerationRequest, send: Callable[[str], None], has_ended: Callable[[], bool]
    ) -> GenerationResult:
        """Generate an answer, passing each piece of text to `send`; stop early once `has_ended` returns True. Raises
        GenerationError if the prompt can't be used or the engine fails."""

    def answers(
        self, requests: Sequence[GenerationRequest], has_ended: Callable[[], bool]
    ) -> list[tuple[str, GenerationResult]]:
        """Generate complete answers to prompts with the same model and sampling. Raises GenerationError when `answer`
        does."""
        completions = []
        for request in requests:
            pieces: list[str] = []
            result = self.answer(request, pieces.append, has_ended)
            completions.append(("".join(pieces), result))
        return completions

    def score(
        self, requests: Sequence[GenerationRequest], top: int, has_ended: Callable[[], bool]
    ) -> list[PromptScores]:
        """Score prompts with one model, each extended by one generated token if max_tokens is 1. Raises GenerationError
        if a prompt can't be used, the engine fails or the request is cancelled."""
        prompts = [self._ids(request) for request in requests]
        for ids in prompts:
            completion_limit(len(ids), self.context, 1)
        extend = any(request.sampling.max_tokens for request in requests)
        return self._score(requests[0].ask.model, prompts, extend, top, has_ended)

    @abstractmethod
    def _score(
        self, model: str, prompts: list[list[int]], extend: bool, top: int, has_ended: Callable[[], bool]
    ) -> list[PromptScores]: ...

    def _ids(self, request: GenerationRequest) -> list[int]:
        return prompt_ids(self._tokenizer, request)

    def close(self) -> None:
        self._models.clear()


@dataclass
class Usage:
    last_used: float = field(default_factory=time.monotonic)
    active: int = 0
    requests: int = 0
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

    def is_idle_for(self, seconds: float) -> bool:
        with self._lock:
            return not self.active and time.monotonic() - self.last_used >= seconds


def prompt_ids(tokenizer: Any, request: GenerationRequest) -> list[int]:
    """Tokenize the prompt. Raises GenerationError if the chat template rejects the messages."""
    if request.tokens:
        return list(request.tokens)
    ask = request.ask
    if not ask.messages:
        return list(tokenizer(ask.plain)["input_ids"])
    if not tokenizer.chat_template and not ask.tools:
        return list(tokenizer("\n\n".join(str(message["content"]) for message in ask.messages))["input_ids"])
    if ask.tools and (reason := tool_calls.problem(str(tokenizer.chat_template))):
        raise GenerationError(reason)
    messages, tools = [dict(message) for message in ask.messages], [dict(tool) for tool in ask.tools] or None
    try:
        text = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates are the model's own code: Jinja's errors, and whatever they raise
        reason = " ".join(str(error).split())[:300]
        raise GenerationError(f"The model's chat template rejects this chat: {reason}") from error
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def completion_limit(prompt_tokens: int, context: int | None, requested: int) -> int:
    """Return the completion's token limit, given the room in the context. Raises GenerationError if there is none."""
    if not prompt_tokens:
        raise GenerationError("The prompt is empty.")
    if context is None:
        return requested
    if prompt_tokens >= context:
        raise GenerationError(
            f"The chat has {prompt_tokens:,} tokens, but this model's limit is {context:,}, including its answer: "
            "send a shorter message, or begin a new chat."
        )
    return min(requested, context - prompt_tokens)


def first_stop(text: str, stops: tuple[str, ...]) -> int | None:
    """Return the index at which the first stop string begins, or None."""
    return min((start for stop in stops if (start := text.find(stop)) >= 0), default=None)


def up_to_end(tokens: list[int], ends: Sequence[int]) -> list[int]:
    """Return the tokens without the padding that follows the first end token."""
    return tokens[: next((index for index, token in enumerate(tokens) if token in ends), len(tokens)) + 1]
