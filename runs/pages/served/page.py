"""What the chat shows: the state of its model, and its turns."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from runs.engine import sentences
from runs.engine.checkpoints import Checkpoint
from runs.engine.models import Run
from runs.engine.records import RunEvent
from runs.engine.served import conversation, starting
from runs.engine.served.models import Answer, Turn
from runs.engine.states import ACTIVE, RunStatus
from workers.contract.reports.chat import BASE, TRAINED, Finish
from workers.contract.wire.names import EventKind

NAMES = {TRAINED: "Trained", BASE: "Before training"}
ENDS = {
    Finish.LENGTH: "cut at the most tokens",
    Finish.STOPPED: "stopped",
    Finish.LEFT: "ended because the page was closed",
}


@dataclass(frozen=True)
class ServedState:
    """The newest served model of a checkpoint."""

    run: Run
    status: str
    text: str
    facts: dict[str, Any]
    """What it said when it was ready: models, template, context, engine, address; empty before."""
    answering: bool
    keyed: bool
    """It answers requests, too."""

    @property
    def mark(self) -> str:
        """Another one whenever the page has to show something else."""
        seen = repr((self.run.pk, self.status, self.text, self.facts, self.answering))
        return hashlib.sha256(seen.encode(errors="replace")).hexdigest()[:16]

    @property
    def live(self) -> bool:
        return self.status in ACTIVE

    @property
    def ready(self) -> bool:
        return self.status == RunStatus.RUNNING and bool(self.facts)


@dataclass(frozen=True)
class AnswerView:
    answer: Answer
    ended: bool
    """By its model, or with it."""

    @property
    def name(self) -> str:
        return NAMES.get(self.answer.model, self.answer.model)

    @property
    def note(self) -> str:
        """Why it ended, unless the model ended it."""
        if not self.ended:
            return ""
        if self.answer.error:
            return self.answer.error
        if not self.answer.finish:
            return "The model ended before this answer did."
        return ENDS.get(Finish(self.answer.finish), "")

    @property
    def wants_scores(self) -> bool:
        return self.ended and self.answer.scores is None and bool(self.answer.text)


@dataclass(frozen=True)
class TurnView:
    turn: Turn
    answers: list[AnswerView]

    @property
    def live(self) -> bool:
        """Whether more is to come."""
        return not all(view.ended for view in self.answers)

    @property
    def wants_scores(self) -> bool:
        return not self.live and any(view.wants_scores for view in self.answers)


def state_of(checkpoint: Checkpoint) -> ServedState | None:
    """None: it was never served."""
    run = starting.live(checkpoint) or starting.of_checkpoint(checkpoint).first()
    return state_of_run(run) if run else None


def state_of_run(run: Run) -> ServedState:
    attempt = run.latest()
    told = RunEvent.objects.filter(run=run, attempt=attempt, kind=EventKind.RESULT).order_by("-id").first()
    facts = (told.data.get("facts") or {}) if told else {}
    said = str(told.data.get("text") or "") if told else ""
    if attempt.status == RunStatus.FAILED:
        said = attempt.detail
    elif attempt.status == RunStatus.RUNNING:
        said = "Ready." if facts else "Loading the model."
    elif attempt.status == RunStatus.STARTING and attempt.phase_detail:
        said = attempt.phase_detail[:1].upper() + attempt.phase_detail[1:] + "."
    text = said or sentences.of_attempt(attempt)
    keyed = bool(run.served.key_sha256)
    return ServedState(run, attempt.status, text, facts, conversation.is_answering(attempt), keyed)


def view_of(turn: Turn) -> TurnView:
    attempt = turn.run.latest()
    over = attempt.status not in ACTIVE or turn.at < attempt.created_at
    return TurnView(turn, [AnswerView(each, bool(each.finish) or over) for each in turn.answers.all()])


def turns_after(checkpoint: Checkpoint, after: int) -> list[TurnView]:
    """The newest turns, the oldest of them first. `after`: the last one that the page has."""
    turns = conversation.turns_of(checkpoint).filter(pk__gt=after).order_by("-pk")
    return [view_of(turn) for turn in reversed(turns[: conversation.MOST_SHOWN])]
