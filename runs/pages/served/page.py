"""The state of the served model and the turns, as the chat page shows them."""

import hashlib
from dataclasses import dataclass
from typing import Any

from controlplane.platform.templatetags.figures import duration
from runs.engine import sentences
from runs.engine.checkpoints import Checkpoint
from runs.engine.models import Run
from runs.engine.records import RunEvent
from runs.engine.sentences import counted
from runs.engine.served import conversation, starting
from runs.engine.served.models import Answer, Turn
from runs.engine.states import ACTIVE, RunStatus
from workers.contract.reports.chat import BASE, TRAINED, Finish
from workers.contract.wire.names import EventKind

NAMES = {TRAINED: "Trained", BASE: "Before training"}
ENDS = {
    Finish.LENGTH: "truncated at the token limit",
    Finish.STOPPED: "stopped",
    Finish.LEFT: "ended because the page was closed",
}


@dataclass(frozen=True)
class ServedState:
    """State of a checkpoint's live or otherwise newest served model."""

    run: Run
    status: str
    text: str
    facts: dict[str, Any]
    """Facts reported by the server once it is ready: models, template, context, engine, address; empty before that."""
    answering: bool
    keyed: bool
    """True if the server also answers requests with a key."""

    @property
    def state_token(self) -> str:
        """Hash that changes whenever the page must be redrawn."""
        state = repr((self.run.pk, self.status, self.text, self.facts, self.answering))
        return hashlib.sha256(state.encode(errors="replace")).hexdigest()[:16]

    @property
    def live(self) -> bool:
        return self.status in ACTIVE

    @property
    def ready(self) -> bool:
        return self.status == RunStatus.RUNNING and bool(self.facts)

    @property
    def chip(self) -> str:
        return "ready" if self.ready else self.status

    @property
    def note(self) -> str:
        if not self.ready:
            return self.text
        has_template = bool(self.facts.get("template"))
        plain_text_note = "" if has_template else "The model has no chat template, so it gets plain text."
        activity = "Answering…" if self.answering else "Ask something." if has_template else ""
        return f"{plain_text_note} {activity}".strip()

    @property
    def how_it_answers(self) -> str:
        if not self.facts:
            return ""
        at_once = self.facts.get("at_once")
        requests = "one request at a time" if at_once == 1 else f"{at_once} concurrent requests"
        plain_text_note = (
            "" if self.facts.get("template") else "; without a chat template, messages are sent as plain text"
        )
        return f"by {self.facts.get('engine')}, {requests}{plain_text_note}"


@dataclass(frozen=True)
class AnswerView:
    answer: Answer
    ended: bool
    """True if the answer is complete or its model has stopped."""

    @property
    def name(self) -> str:
        return NAMES.get(self.answer.model, self.answer.model)

    @property
    def note_tone(self) -> str:
        return "bad" if self.answer.error else "muted"

    @property
    def length(self) -> str:
        if self.answer.tokens is None:
            return ""
        return f"{counted(self.answer.tokens, 'token')}, {duration(self.answer.seconds)}"

    @property
    def note(self) -> str:
        """Reason why the answer ended, unless the model ended it."""
        if not self.ended:
            return ""
        if self.answer.error:
            return self.answer.error
        if not self.answer.finish:
            return "The model stopped before this answer was complete."
        return ENDS.get(Finish(self.answer.finish), "")

    @property
    def wants_scores(self) -> bool:
        return self.ended and self.answer.scores is None and bool(self.answer.text)


@dataclass(frozen=True)
class TurnView:
    turn: Turn
    answers: list[AnswerView]

    @property
    def beginning(self) -> str:
        return "New chat, with the system prompt:" if self.turn.system else "New chat"

    @property
    def origin(self) -> str:
        sampling, row = self.turn.sampling, self.turn.row
        username = self.turn.by.username if self.turn.by else ""
        row_note = "" if row is None else f" · row {row} of the dataset"
        return f"{username} · temperature {sampling.get('temperature')} · seed {sampling.get('seed')}{row_note}"

    @property
    def live(self) -> bool:
        """True while an answer is being written."""
        return not all(view.ended for view in self.answers)

    @property
    def wants_scores(self) -> bool:
        return not self.live and any(view.wants_scores for view in self.answers)


def state_of(checkpoint: Checkpoint) -> ServedState | None:
    """Return the state of a checkpoint's live or otherwise newest served model, or None if it was never served."""
    run = starting.live_run(checkpoint) or starting.of_checkpoint(checkpoint).first()
    return state_of_run(run) if run else None


def state_of_run(run: Run) -> ServedState:
    attempt = run.latest()
    result = RunEvent.objects.filter(run=run, attempt=attempt, kind=EventKind.RESULT).order_by("-id").first()
    facts = (result.data.get("facts") or {}) if result else {}
    sentence = str(result.data.get("text") or "") if result else ""
    if attempt.status == RunStatus.FAILED:
        sentence = attempt.detail
    elif attempt.status == RunStatus.RUNNING:
        sentence = "Ready." if facts else "Loading the model."
    elif attempt.status == RunStatus.STARTING and attempt.phase_detail:
        sentence = sentences.as_sentence(attempt.phase_detail)
    sentence = sentence or sentences.of_attempt(attempt)
    keyed = bool(run.served.key_sha256)
    return ServedState(run, attempt.status, sentence, facts, conversation.is_answering(attempt), keyed)


def view_of(turn: Turn) -> TurnView:
    attempt = turn.run.latest()
    has_ended = attempt.status not in ACTIVE or turn.at < attempt.created_at
    return TurnView(turn, [AnswerView(answer, bool(answer.finish) or has_ended) for answer in turn.answers.all()])


def turns_after(checkpoint: Checkpoint, after: int) -> list[TurnView]:
    """Return the newest turns after the page's last one (`after`), in order."""
    turns = conversation.turns_of(checkpoint).filter(pk__gt=after).order_by("-pk")
    return [view_of(turn) for turn in reversed(turns[: conversation.MAX_SHOWN])]
