"""The job that serves a model: loaded once, the model answers chat turns, and HTTP requests if the job listens for
them.

The job ends after `idle_minutes` without either. Turns come from FileName.CHAT, which the supervisor writes; answers
are written as lines of EventKind.ANSWER.
"""

import contextlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import ip_address
from pathlib import Path

from workers.contract.reports.chat import KEY_DIGEST, REQUESTS, Ask, ChatNews, ChatTurn, Finish
from workers.contract.run.hardware import Rollout
from workers.contract.run.jobs import ServeSettings
from workers.contract.wire.documents import from_dict
from workers.contract.wire.names import EventKind, FileName
from workers.trainer.configuration import imports
from workers.trainer.configuration.spec import SpecError, TrainerError
from workers.trainer.jobs import ModelJob
from workers.trainer.jobs.generation import GenerationError, GenerationRequest, GenerationResult, ModelEngine, Usage
from workers.trainer.jobs.model_endpoint import ModelEndpoint
from workers.trainer.recording.metrics import LineFile

POLL_S = 0.03
COUNT_EVERY_S = 1.0
FLUSH_EVERY_S = 0.1
MAX_PIECE = 2_000
"""Maximum number of characters of one line; JSON may use six bytes for each, and lines have a limit."""


def run(job: ModelJob, settings: ServeSettings) -> None:
    """Serve the model until it has been idle for too long, a run needs its resources, or there is a stop. Raises
    TrainerError if the model can't be loaded or can't listen for requests."""
    if settings.address:
        try:
            ip_address(settings.address)
        except ValueError:
            raise SpecError(f"{settings.address!r} is not an IP address to listen on.") from None
    job.stage("loading the model")
    engine = open_engine(job)
    usage = Usage()
    with contextlib.ExitStack() as stack:
        stack.callback(engine.close)
        address = ""
        if settings.address:
            digest = os.environ.pop(KEY_DIGEST, "")
            if not digest:
                raise TrainerError("The key for requests didn't arrive, so the model can't listen for requests.")
            endpoint = ModelEndpoint(engine, usage, digest=digest)
            address = endpoint.open(settings.address, job.spec.placement.ports[-1])
            stack.callback(endpoint.close)
        facts = {"models": list(engine.models), "template": engine.template, "engine": engine.name, "address": address}
        job.begin(1)
        job.result("", at_once=engine.at_once, context=engine.context, **facts)
        was_wanted = _chat(job, engine, usage, settings)
    idle_message = f"Ended after {settings.idle_minutes:g} minutes without a message or a request."
    job.result(
        "Ended because nobody used it and another run needed its resources." if was_wanted else idle_message, **facts
    )


def open_engine(job: ModelJob, *, with_base: bool = True) -> ModelEngine:
    """Load the job's model and return its engine. `with_base`: load the base, too, beside a full checkpoint."""
    if job.spec.run.hardware.rollout is Rollout.SERVER:
        from workers.trainer.jobs.vllm_engine import VllmEngine

        return VllmEngine(job)
    with imports.speed_up():
        from workers.trainer.jobs.transformers_engine import TransformersEngine

    return TransformersEngine(job, with_base=with_base)


def _chat(job: ModelJob, engine: ModelEngine, usage: Usage, settings: ServeSettings) -> bool:
    """Answer chat turns until the model has been idle for too long or there is a stop; return whether another run is
    waiting for the model's resources."""
    inbox = _ChatInbox(job.folder / FileName.CHAT)
    counted_requests, counted_at = 0, float("-inf")
    with ThreadPoolExecutor(engine.at_once, thread_name_prefix="chat") as threads:
        while not usage.is_idle_for(inbox.patience(settings)) and not job.stop_requested:
            now, requests = time.monotonic(), usage.requests
            if requests != counted_requests and now - counted_at >= COUNT_EVERY_S:
                counted_requests, counted_at = requests, now
                job.metrics.log(0, {REQUESTS: float(requests)})
            for turn in inbox.read():
                usage.touch()
                for ask in turn.asks:
                    threads.submit(_answer, job, engine, usage, turn, ask, partial(inbox.ended, turn.number))
            time.sleep(POLL_S)
        inbox.closed = True
    return inbox.is_wanted


def _answer(job: ModelJob, engine: ModelEngine, usage: Usage, turn: ChatTurn, ask: Ask, end_check: "_EndCheck") -> None:
    lines = _AnswerLines(job.metrics, turn=turn.number, model=ask.model)
    with usage.answering():
        try:
            if (reason := end_check()) is not None:
                lines.end(reason)
                return
            with engine.turn(end_check):
                result = engine.answer(
                    GenerationRequest(ask, turn.sampling), lines.add, lambda: end_check() is not None
                )
            lines.end(end_check() or Finish.STOPPED if result.finish is Finish.STOPPED else result.finish, result)
        except GenerationError as error:
            lines.end(end_check() or Finish.ERROR, error=str(error))
        except Exception as error:  # in a thread: the answer reports it, and the model remains available
            lines.end(Finish.ERROR, error=f"{type(error).__name__}: {' '.join(str(error).split())[:400]}")
            raise


class _AnswerLines:
    """Writer of one answer to metrics.jsonl, its text in pieces and then its end, for use by one thread."""

    def __init__(self, lines: LineFile, *, turn: int, model: str) -> None:
        self._lines = lines
        self._turn, self._model = turn, model
        self._text = ""
        self._pieces = 0
        self._began = time.monotonic()
        self._flushed = float("-inf")

    def add(self, text: str) -> None:
        self._text += text
        if self._text and time.monotonic() - self._flushed >= FLUSH_EVERY_S:
            self._flush()

    def end(self, why: Finish, result: GenerationResult | None = None, *, error: str = "") -> None:
        self._flush()
        tokens, prompt_tokens = (result.tokens, result.prompt_tokens) if result else (0, 0)
        end = {"why": why, "tokens": tokens, "prompt_tokens": prompt_tokens}
        self._write("", {**end, "seconds": round(time.monotonic() - self._began, 3), "error": error[:1000]})

    def _flush(self) -> None:
        while self._text:
            piece, self._text = self._text[:MAX_PIECE], self._text[MAX_PIECE:]
            self._write(piece, {})
        self._flushed = time.monotonic()

    def _write(self, text: str, end: dict[str, object]) -> None:
        self._pieces += 1
        data = {"turn": self._turn, "model": self._model, "piece": self._pieces, "text": text, "end": end}
        self._lines.event(EventKind.ANSWER, data)


class _ChatInbox:
    """Reader of FileName.CHAT as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._news = ChatNews()
        self.closed = False
        """True if all answers must end."""

    def read(self) -> list[ChatTurn]:
        """Return the turns added since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        complete_lines = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete_lines)
        turns: list[ChatTurn] = []
        for line in complete_lines.splitlines():
            self._news = from_dict(ChatNews, json.loads(line))
            turns += self._news.turns
        return turns

    @property
    def is_wanted(self) -> bool:
        """True if another run is waiting for the model's resources."""
        return self._news.wanted

    def patience(self, settings: ServeSettings) -> float:
        return settings.gives_way_s if self.is_wanted else 60 * settings.idle_minutes

    def ended(self, turn: int) -> Finish | None:
        """Return why the answers to a turn must end, or None if they may continue."""
        latest_news = self._news
        if self.closed or turn <= latest_news.stopped:
            return Finish.STOPPED
        return None if latest_news.present else Finish.LEFT


_EndCheck = partial[Finish | None]
