"""The chat: asking, stopping, who has it open, and what its supervisor is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from controlplane.platform.accounts.models import User
from runs.engine.checkpoints import Checkpoint
from runs.engine.models import Attempt, Run
from runs.engine.served import starting
from runs.engine.served.models import Answer, Served, Turn
from runs.engine.states import ACTIVE, RunStatus
from workers.contract.reports.chat import LONGEST_CHAT, Ask, ChatNews, ChatTurn, Sampling
from workers.contract.run.jobs import SERVE

PRESENT_S = 90.0
"""A page asks every second, and one in the background once a minute at worst."""
LEAVING_S = 1.5
"""After a page was closed: another one that is open says so within this time."""
REFRESH_S = 5.0
MOST_SHOWN = 100
"""Turns on a page: the newest ones."""

Message = dict[str, Any]


class NotAsked(Exception):
    """The turn can't be asked; the message says why."""


@dataclass(frozen=True)
class Question:
    prompt: list[Message] | str
    system: str
    sampling: Sampling
    row: int | None = None
    parent: Turn | None = None


def turns_of(checkpoint: Checkpoint) -> QuerySet[Turn]:
    """All turns about a checkpoint, in all of its served models, in order."""
    turns = Turn.objects.filter(run__source=checkpoint.run, run__kind=SERVE, run__spec__start_from=checkpoint.folder)
    return turns.select_related("run", "by", "parent").prefetch_related("answers")


def ask(run: Run, user: User, question: Question) -> Turn:
    """Store a turn of a live served model, from where its supervisor gets it. Raises NotAsked."""
    with transaction.atomic():
        served = Served.objects.select_for_update().get(run=run)
        attempt = run.latest()
        if attempt.status not in ACTIVE:
            raise NotAsked("The model has just ended. Send it again to start it.")
        if is_answering(attempt):
            raise NotAsked("The last message is still being answered. Wait, or stop that answer.")
        for model in starting.models_of(run):
            _check_length(_messages(question.system, question.prompt, question.parent, model))
        number = (run.turns.aggregate(last=Max("number"))["last"] or 0) + 1
        turn = Turn.objects.create(
            run=run,
            number=number,
            by=user,
            parent=question.parent,
            system=question.system,
            prompt=question.prompt,
            row=question.row,
            sampling=asdict(question.sampling),
        )
        Answer.objects.bulk_create([Answer(turn=turn, model=model) for model in starting.models_of(run)])
        served.present_until = timezone.now() + timedelta(seconds=PRESENT_S)
        served.save(update_fields=["present_until"])
    return turn


def is_answering(attempt: Attempt) -> bool:
    """Whether answers of this attempt are waited for or come in."""
    unfinished = Answer.objects.filter(turn__run=attempt.run_id, turn__at__gte=attempt.created_at, finish="")
    return attempt.status in ACTIVE and unfinished.exists()


def stop(run: Run) -> None:
    """End the answers under way at once."""
    last = run.turns.aggregate(last=Max("number"))["last"] or 0
    Served.objects.filter(run=run, stopped__lt=last).update(stopped=last)


def see(run: Run) -> None:
    """Somebody has the chat open."""
    until = timezone.now() + timedelta(seconds=PRESENT_S)
    stale = until - timedelta(seconds=REFRESH_S)
    Served.objects.filter(run=run).exclude(present_until__gt=stale).update(present_until=until)


def leave(run: Run) -> None:
    """A page was closed. Another one that is open comes before the time is over."""
    until = timezone.now() + timedelta(seconds=LEAVING_S)
    Served.objects.filter(run=run, present_until__gt=until).update(present_until=until)


def news(attempt: Attempt, after: int) -> ChatNews | None:
    """For the attempt's supervisor, which has the turns up to `after`. None: the run serves no model."""
    served = Served.objects.filter(run=attempt.run_id).first()
    if served is None:
        return None
    turns = Turn.objects.filter(run=attempt.run_id, number__gt=after, at__gte=attempt.created_at)
    open_turns = turns.filter(answers__finish="").distinct().order_by("number").prefetch_related("answers")
    present = served.present_until is not None and served.present_until > timezone.now()
    # What is served with a key is not for this page alone.
    wanted = not served.key_sha256 and Attempt.objects.filter(status=RunStatus.QUEUED, waits_on=attempt.run_id).exists()
    return ChatNews(tuple(_told(turn) for turn in open_turns), served.stopped, present, wanted)


def _told(turn: Turn) -> ChatTurn:
    asks = tuple(_ask(turn, answer.model) for answer in turn.answers.all() if not answer.finish)
    return ChatTurn(turn.number, asks, Sampling(**turn.sampling))


def _ask(turn: Turn, model: str) -> Ask:
    messages = _messages(turn.system, turn.prompt, turn.parent, model)
    return Ask(model, plain=messages) if isinstance(messages, str) else Ask(model, messages=tuple(messages))


def _messages(system: str, prompt: list[Message] | str, parent: Turn | None, model: str) -> list[Message] | str:
    """All that one model is asked: each model goes on from its own answers."""
    if isinstance(prompt, str):
        return prompt
    earlier: list[Message] = []
    while parent is not None and not parent.plain:
        answer = parent.answers.filter(model=model).first()
        said = [{"role": "assistant", "content": answer.text}] if answer and answer.text else []
        earlier = [*parent.prompt, *said, *earlier]
        parent = parent.parent
    return [*([{"role": "system", "content": system}] if system else []), *earlier, *prompt]


def _check_length(messages: Sequence[Message] | str) -> None:
    texts = [messages] if isinstance(messages, str) else [str(message["content"]) for message in messages]
    length = sum(map(len, texts))
    if length > LONGEST_CHAT:
        raise NotAsked(
            f"The chat has {length:,} characters with this message, and at most {LONGEST_CHAT:,} are sent to a model. "
            "Shorten it, or begin a new chat."
        )
