"""Checkpoints that are served, and turns of their chats."""

from __future__ import annotations

from typing import Any

from runs.engine import checkpoints
from runs.engine.checkpoints import Checkpoint
from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent
from runs.engine.served import conversation, starting
from runs.engine.served.conversation import Question
from runs.engine.served.models import Turn
from runs.intake.host_api import ingest
from tests.runs.builders import a_host, a_run, a_user, an_attempt, event
from workers.contract.reports.chat import Sampling


def a_checkpoint(**run: Any) -> Checkpoint:
    """Of step 4, on a host with room for another run."""
    made = a_run(host=a_host(cpu_slots=2), **run)
    attempt = an_attempt(run=made)
    Attempt.objects.filter(pk=attempt.pk).update(host=made.host)
    saved = {"step": 4, "path": "checkpoints/checkpoint-4", "bytes": 10, "kept": [4]}
    ingest.accept(attempt, [event(1, "checkpoint", **saved)])
    return checkpoints.of_run(Run.objects.get(pk=made.pk))[0]


def a_turn(saved: RunEvent, text: str = "What is 2 + 3?") -> Turn:
    found = checkpoints.find(saved.run, str(saved.pk))
    assert found is not None
    served = starting.live_or_start(found, a_user())
    return conversation.ask(served, a_user(), Question([{"role": "user", "content": text}], "", Sampling()))


def piece(seq: int, turn: int, text: str, *, model: str = "trained", **end: Any) -> Any:
    about = {"turn": turn, "model": model, "piece": seq, "text": text}
    full = {"why": "stop", "tokens": 3, "prompt_tokens": 9, "seconds": 0.5, "error": ""}
    return event(seq, "answer", **about, end={**full, **end} if end else {})
