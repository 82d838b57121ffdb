"""The chat with a served model: asking, stopping, the presence of viewers, and the turns that its supervisor gets."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Max, QuerySet, Value
from django.db.models.functions import Concat
from django.utils import timezone

from controlplane.platform.accounts.models import User
from runs.engine.checkpoints import Checkpoint
from runs.engine.models import Attempt, Run
from runs.engine.served import starting
from runs.engine.served.models import Answer, Served, Turn
from runs.engine.states import ACTIVE, RunStatus
from workers.contract.reports.chat import MAX_CHAT_LENGTH, Ask, ChatNews, ChatTurn, Finish, Sampling
from workers.contract.run.jobs import SERVE

PRESENT_S = 90.0
"""Seconds for which a viewer counts as present; an open page polls at least once a minute."""
LEAVING_S = 1.5
"""Seconds of presence left after a page was closed. Another open page polls within this time."""
REFRESH_S = 5.0
MAX_SHOWN = 100
"""Upper bound of the turns on a page, newest first."""

Message = dict[str, Any]
_FINISHES = frozenset(Finish)


class NotAsked(Exception):
    """The message can't be sent to the model; the text says why."""


@dataclass(frozen=True)
class Question:
    prompt: list[Message] | str
    system: str
    sampling: Sampling
    row: int | None = None
    parent: Turn | None = None


def turns_of(checkpoint: Checkpoint) -> QuerySet[Turn]:
    """List the turns with all served models of a checkpoint, oldest first."""
    turns = Turn.objects.filter(run__source=checkpoint.run, run__kind=SERVE, run__spec__start_from=checkpoint.folder)
    return turns.select_related("run", "by", "parent").prefetch_related("answers")


def ask(run: Run, user: User, question: Question) -> Turn:
    """Store a turn, which the served model's supervisor will fetch, and return it. Raises NotAsked if the model has
    stopped, is still answering, or would get too long a conversation."""
    with transaction.atomic():
        served_model = Served.objects.select_for_update().get(run=run)
        attempt = run.latest()
        if attempt.status not in ACTIVE:
            raise NotAsked("The model has just stopped. Send the message again to start it.")
        if is_answering(attempt):
            raise NotAsked("The last message is still being answered. Wait, or stop the answer.")
        for model in starting.models_of(run):
            _check_length(_messages(question.system, question.prompt, question.parent, model))
        turn_number = (run.turns.aggregate(last=Max("number"))["last"] or 0) + 1
        turn = Turn.objects.create(
            run=run,
            number=turn_number,
            by=user,
            parent=question.parent,
            system=question.system,
            prompt=question.prompt,
            row=question.row,
            sampling=asdict(question.sampling),
        )
        Answer.objects.bulk_create([Answer(turn=turn, model=model) for model in starting.models_of(run)])
        served_model.present_until = timezone.now() + timedelta(seconds=PRESENT_S)
        served_model.save(update_fields=["present_until"])
    return turn


def is_answering(attempt: Attempt) -> bool:
    """Return whether this attempt is active and has unfinished answers."""
    unfinished_answers = Answer.objects.filter(turn__run=attempt.run_id, turn__at__gte=attempt.created_at, finish="")
    return attempt.status in ACTIVE and unfinished_answers.exists()


def stop(run: Run) -> None:
    """Ask the served models to stop all unfinished answers."""
    last_number = run.turns.aggregate(last=Max("number"))["last"] or 0
    Served.objects.filter(run=run, stopped__lt=last_number).update(stopped=last_number)


def record_presence(run: Run) -> None:
    """Record that somebody has the chat open."""
    until = timezone.now() + timedelta(seconds=PRESENT_S)
    stale_before = until - timedelta(seconds=REFRESH_S)
    Served.objects.filter(run=run).exclude(present_until__gt=stale_before).update(present_until=until)


def record_departure(run: Run) -> None:
    """Record that a page was closed. If another page is open, it renews the presence in time."""
    until = timezone.now() + timedelta(seconds=LEAVING_S)
    Served.objects.filter(run=run, present_until__gt=until).update(present_until=until)


def news(attempt: Attempt, after: int) -> ChatNews | None:
    """Collect news for a supervisor that has the turns up to `after`; return None if the run doesn't serve a model."""
    served_model = Served.objects.filter(run=attempt.run_id).first()
    if served_model is None:
        return None
    turns = Turn.objects.filter(run=attempt.run_id, number__gt=after, at__gte=attempt.created_at)
    open_turns = turns.filter(answers__finish="").distinct().order_by("number").prefetch_related("answers")
    is_present = served_model.present_until is not None and served_model.present_until > timezone.now()
    # A model that is served with a key has other users than this page.
    queued_attempts = Attempt.objects.filter(status=RunStatus.QUEUED, waits_on=attempt.run_id)
    is_needed = not served_model.key_sha256 and queued_attempts.exists()
    return ChatNews(tuple(map(_chat_turn, open_turns)), served_model.stopped, is_present, is_needed)


def store_answer(run_id: str, data: dict[str, Any]) -> None:
    """Store a part of an answer (one line of EventKind.ANSWER) in ingest's transaction, so that it is stored once."""
    answer = Answer.objects.filter(turn__run=run_id, turn__number=data["turn"], model=data["model"], finish="")
    if text := _replace_nuls(data["text"]):
        answer.update(text=Concat("text", Value(text)))
    if end := data["end"]:
        finish_reason, tokens, seconds = (end.get(name) for name in ("why", "tokens", "seconds"))
        has_token_count = isinstance(tokens, int) and not isinstance(tokens, bool) and 0 <= tokens < 2**31
        has_duration = isinstance(seconds, int | float) and 0 <= seconds < 1e9
        answer.update(
            finish=finish_reason if finish_reason in _FINISHES else Finish.ERROR,
            error=_replace_nuls(str(end.get("error") or ""))[:1000],
            tokens=tokens if has_token_count else None,
            seconds=float(seconds) if has_duration else None,
        )


def _replace_nuls(text: str) -> str:
    """Replace NULs, which PostgreSQL can't store."""
    return text.replace("\0", "\ufffd")


def _chat_turn(turn: Turn) -> ChatTurn:
    asks = []
    for answer in turn.answers.all():
        if not answer.finish:
            messages = _messages(turn.system, turn.prompt, turn.parent, answer.model)
            if isinstance(messages, str):
                asks.append(Ask(answer.model, plain=messages))
            else:
                asks.append(Ask(answer.model, messages=tuple(messages)))
    return ChatTurn(turn.number, tuple(asks), Sampling(**turn.sampling))


def _messages(system: str, prompt: list[Message] | str, parent: Turn | None, model: str) -> list[Message] | str:
    """Build the messages for one model. The history contains only that model's own answers."""
    if isinstance(prompt, str):
        return prompt
    earlier_messages: list[Message] = []
    while parent is not None and not parent.plain:
        answer = parent.answers.filter(model=model).first()
        reply = [{"role": "assistant", "content": answer.text}] if answer and answer.text else []
        earlier_messages = [*parent.prompt, *reply, *earlier_messages]
        parent = parent.parent
    return [*([{"role": "system", "content": system}] if system else []), *earlier_messages, *prompt]


def _check_length(messages: Sequence[Message] | str) -> None:
    texts = [messages] if isinstance(messages, str) else [str(message["content"]) for message in messages]
    length = sum(map(len, texts))
    if length > MAX_CHAT_LENGTH:
        raise NotAsked(
            f"With this message, the chat has {length:,} characters; the limit is {MAX_CHAT_LENGTH:,}. Shorten the "
            "message, or start a new chat."
        )
