"""A served model: loaded once, it answers the turns of the chat, and HTTP requests if the job listens for them.

It ends by itself after `idle_minutes` without either. Turns come from FileName.CHAT, which the supervisor writes;
answers leave as lines of EventKind.ANSWER.
"""

from __future__ import annotations

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
from workers.contract.wire.documents import ContractError, from_dict
from workers.contract.wire.names import FileName
from workers.trainer.configuration.spec import SpecError, TrainerError
from workers.trainer.jobs import Job
from workers.trainer.jobs.answers import AnswerLines
from workers.trainer.jobs.asking import Asked, AskError, Engine, Use
from workers.trainer.jobs.listener import Listener

LOOK_S = 0.03
COUNTED_EVERY_S = 1.0


def run(job: Job) -> None:
    try:
        settings = from_dict(ServeSettings, job.spec.run.job, at="job")
    except ContractError as error:
        raise SpecError(f"The job's settings can't be used: {error}.") from error
    if settings.address and not _is_ip(settings.address):
        raise SpecError(f"{settings.address!r} is no IP address to listen on.")
    job.stage("loading the model")
    engine = open_engine(job)
    use = Use()
    with contextlib.ExitStack() as stack:
        stack.callback(engine.close)
        address = ""
        if settings.address:
            digest = os.environ.pop(KEY_DIGEST, "")
            if not digest:
                raise TrainerError("The key for requests did not arrive, so nothing listens.")
            port = job.spec.placement.ports[-1]
            listener = stack.enter_context(Listener.open(settings.address, port, engine, use, digest=digest))
            address = listener.address
        facts = {"models": list(engine.models), "template": engine.template, "engine": engine.name, "address": address}
        job.begin(1)
        job.result("", at_once=engine.at_once, context=engine.context, **facts)
        gave_way = _chat(job, engine, use, settings)
    idle = f"Ended after {settings.idle_minutes:g} minutes without a message or a request."
    job.result("Nobody used it, and another run waited for its place." if gave_way else idle, **facts)


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def open_engine(job: Job, *, with_base: bool = True) -> Engine:
    """`with_base`: beside all weights too, by transformers; an adapter always has it."""
    if job.spec.run.hardware.rollout is Rollout.SERVER:
        from workers.trainer.jobs.vllmengine import VllmEngine

        return VllmEngine(job)
    from workers.trainer.jobs.transformersengine import TransformersEngine

    return TransformersEngine(job, with_base=with_base)


def _chat(job: Job, engine: Engine, use: Use, settings: ServeSettings) -> bool:
    """Follow the chat until nobody has used the model for long enough, or STOP is there. Whether it gives way."""
    inlet, stop, counted = _Inlet(job.folder / FileName.CHAT), job.folder / FileName.STOP, _Counted(job)
    with ThreadPoolExecutor(engine.at_once, thread_name_prefix="chat") as threads:
        while not use.idle_for(inlet.patience(settings)) and not stop.exists():
            counted.tell(use.requests)
            for turn in inlet.read():
                use.touch()
                for ask in turn.asks:
                    threads.submit(_answer, job, engine, use, turn, ask, partial(inlet.ended, turn.number))
            time.sleep(LOOK_S)
        inlet.closed = True
    return inlet.wanted


def _answer(job: Job, engine: Engine, use: Use, turn: ChatTurn, ask: Ask, ended: _Ended) -> None:
    lines = AnswerLines(job.metrics, turn=turn.number, model=ask.model)
    with use.one():
        try:
            if (why := ended()) is not None:
                lines.end(why)
                return
            with engine.turn(ended):
                done = engine.answer(Asked(ask, turn.sampling), lines.add, lambda: ended() is not None)
            lines.end(ended() or Finish.STOPPED if done.finish is Finish.STOPPED else done.finish, done)
        except AskError as error:
            lines.end(ended() or Finish.ERROR, error=str(error))
        except Exception as error:  # a thread's border: the answer says it, and the model stays
            lines.end(Finish.ERROR, error=f"{type(error).__name__}: {' '.join(str(error).split())[:400]}")
            raise


class _Counted:
    """The requests so far, told at most once a second."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._told, self._at = 0, float("-inf")

    def tell(self, requests: int) -> None:
        now = time.monotonic()
        if requests != self._told and now - self._at >= COUNTED_EVERY_S:
            self._told, self._at = requests, now
            self._job.metrics.log(0, {REQUESTS: float(requests)})


class _Inlet:
    """FileName.CHAT as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._news = ChatNews()
        self.closed = False
        """No answer goes on."""

    def read(self) -> list[ChatTurn]:
        """The turns since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        turns: list[ChatTurn] = []
        for line in whole.splitlines():
            self._news = from_dict(ChatNews, json.loads(line))
            turns += self._news.turns
        return turns

    @property
    def wanted(self) -> bool:
        return self._news.wanted

    def patience(self, settings: ServeSettings) -> float:
        """How many seconds it waits for somebody to use it."""
        return settings.gives_way_s if self.wanted else 60 * settings.idle_minutes

    def ended(self, turn: int) -> Finish | None:
        """Why the answers to a turn are to end; None: they go on."""
        news = self._news
        if self.closed or turn <= news.stopped:
            return Finish.STOPPED
        return None if news.present else Finish.LEFT


_Ended = partial[Finish | None]
