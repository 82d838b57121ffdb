"""Questions to a served model: an entered message or a prompt from the run's dataset, as a turn of the chat."""

from typing import Any

from django.http import Http404

from controlplane.platform.accounts.models import User
from runs.engine.artifacts.saved_models import SavedModel
from runs.engine.served import conversation, starting
from runs.engine.served.conversation import Message, NotAsked, Question
from runs.engine.served.models import Turn
from runs.insight.scoring import rows
from runs.pages.served.forms import AskForm
from workers.contract.reports.chat import Sampling


def ask(model: SavedModel, user: User, new_question: Question) -> Turn:
    """Ask the served models and return the new turn. If the models have stopped, they are started where they last ran.
    Raises NotAsked if they can't take a question now, ContractError if the checkpoint can't be used, and QueueFull if
    this user may not queue more runs."""
    device = starting.last_engine(model.checkpoint, starting.host_for(model.checkpoint))
    if not device:
        raise NotAsked("Load the model first: choose where it should run.")
    run = starting.live_or_start(model.checkpoint, user, engine=device)
    return conversation.ask(run, user, new_question)


def question(model: SavedModel, form: AskForm) -> Question:
    data = form.cleaned_data
    parent = None if data["new"] else conversation.turns_of(model.checkpoint).last()
    number = data["row"]
    prompt: list[Message] | str = [{"role": "user", "content": data["text"]}]
    if number is not None:
        row = rows.of_run(model.run, [number]).rows.get(number)
        row_fields = prompt_of(row) if row else {}
        if row is None or (row_fields["text"], row_fields["system"]) != (data["text"], data["system"]):
            number = None  # the prompt was edited and is no longer the row's, so its answer is unknown
        elif isinstance(row["prompt"], str):
            prompt = row["prompt"]
        else:
            prompt = [message for message in row["prompt"] if message["role"] != "system"]
    return Question(prompt, data["system"], form.sampling(), number, None if number is not None else parent)


def repeated_question(turn: Turn) -> Question:
    sampling = {**turn.sampling, "seed": (turn.sampling["seed"] + 1) % 2**31}
    return Question(turn.prompt, turn.system, Sampling(**sampling), turn.row, turn.parent)


def prompt_of(row: dict[str, Any]) -> dict[str, Any]:
    prompt = row["prompt"]
    if isinstance(prompt, str):
        return {"text": prompt, "system": "", "row": row["row"]}
    system = next((str(message["content"]) for message in prompt if message["role"] == "system"), "")
    return {"text": str(prompt[-1]["content"]), "system": system, "row": row["row"]}


def turn_of(model: SavedModel, turn_id: int) -> Turn:
    """Return a turn of this model. Raises Http404 if the model has no such turn."""
    turn = conversation.turns_of(model.checkpoint).filter(pk=turn_id).first()
    if turn is None:
        raise Http404(f"There is no turn {turn_id}.")
    return turn
