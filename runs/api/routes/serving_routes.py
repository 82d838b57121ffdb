"""Served models: through an OpenAI-compatible API with a key, and in the chat with the trained model and its base."""

from functools import partial
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Field, Query, Status

from controlplane.platform.accounts.roles import person
from runs.api import form_values, shapes
from runs.api.access import ADMIN, Problem, Router, refusing
from runs.api.shapes import Id, ItemResponse, RequestBody, ResponseBody, RunResponse
from runs.engine import queries
from runs.engine.artifacts import saved_models as catalogue
from runs.engine.artifacts.saved_models import SavedModel
from runs.engine.scheduling import stopping
from runs.engine.scheduling.limits import QueueFull
from runs.engine.served import conversation, endpoint, starting
from runs.engine.served.conversation import NotAsked
from runs.insight.scoring import rows
from runs.pages.served import page, questions, scoring
from runs.pages.served.forms import MAX_IDLE_MINUTES, AskForm, DeviceForm, ServeForm
from runs.pages.served.page import TurnView
from workers.contract.reports.chat import MAX_CHAT_LENGTH, MAX_TOKENS
from workers.contract.run.jobs import LOOPBACK
from workers.contract.wire.documents import ContractError
from workers.contract.wire.names import StopMode

router = Router(tags=["served models"])


class ServingPlace(RequestBody):
    place: Literal["cpu", "gpu", "vllm"] | None = Field(None, description="Where the model runs. If null, on the CPU.")


class Serve(ServingPlace):
    address: str = Field(
        LOOPBACK, max_length=64, description="The address on the host to listen on. Admins can allow other addresses."
    )
    idle_minutes: Annotated[int, Field(ge=1, le=MAX_IDLE_MINUTES)] = Field(
        60, description="Minutes without a request after which serving stops."
    )


class ServeResponse(ResponseBody):
    run: RunResponse
    """The run that serves the model."""
    key: str
    """The key. It is not stored and is never shown again."""


class ServingState(ResponseBody):
    chat: dict[str, Any] | None
    """The newest run that served the model, live or ended. null if none."""
    endpoint: dict[str, Any] | None
    """The run that serves the model with a key. null if none."""


class ServingStopResponse(ResponseBody):
    changed: bool
    """false if the model was not being served."""


class ChatQuestion(RequestBody):
    text: str | None = Field(None, max_length=MAX_CHAT_LENGTH, description="The message.")
    row: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = Field(
        None, description="A row of the run's dataset, used instead of `text`. Its prompt starts a new chat."
    )
    system: str | None = Field(None, max_length=MAX_CHAT_LENGTH)
    new: bool = Field(False, description="If true, omit the earlier messages.")
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.7
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] = 512
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0


class Turns(ResponseBody):
    state: dict[str, Any] | None
    """The newest run that served the model, live or ended. null if none."""
    items: list[dict[str, Any]]
    """The newest turns in order, each with the question and the answers so far."""


@router.get("models/{int:event_id}/serving", response=ServingState)
def serving(request: HttpRequest, event_id: Id) -> Any:
    """Read how a model is served. Only admins see the endpoint's address."""
    model = catalogue.model_for(request, event_id)
    return {"chat": _state(model), "endpoint": _endpoint(model, with_address=person(request).may_administer)}


@router.post("models/{int:event_id}/serving", auth=ADMIN, response={201: ServeResponse})
def serve(request: HttpRequest, event_id: Id, payload: Serve) -> Any:
    """Serve a model through an OpenAI-compatible API with a key. The response contains the key. Admins only."""
    model = catalogue.model_for(request, event_id)
    host = starting.host_for(model.checkpoint)
    form = form_values.fill(partial(ServeForm, host), payload.dict(exclude_none=True))
    data = form.cleaned_data
    with refusing(ContractError, QueueFull, where="model", message="The model can't be served: {}."):
        run, key = starting.start_with_key(
            model.checkpoint,
            person(request),
            engine=form.device,
            address=data["address"],
            idle_minutes=float(data["idle_minutes"]),
        )
    return Status(201, {"run": shapes.run(queries.run_for(request, run.pk)), "key": key})


@router.post("models/{int:event_id}/serving/stop", response=ServingStopResponse)
def stop_serving(request: HttpRequest, event_id: Id) -> Any:
    """Stop serving a model with a key."""
    run = starting.live_with_key(catalogue.model_for(request, event_id).checkpoint)
    return {"changed": bool(run and stopping.request_stop(run.latest(), StopMode.NOW, person(request)))}


@router.get("models/{int:event_id}/chat", response=Turns)
def chat(
    request: HttpRequest,
    event_id: Id,
    after: Annotated[int, Query(0, ge=0, le=2**53, description="Only turns with a greater id.")] = 0,
) -> Any:
    """Read the newest turns of the chat with a model, in order. Repeat the request until the answers are complete."""
    model = catalogue.model_for(request, event_id)
    state = page.state_of(model.checkpoint)
    if state and state.live:
        conversation.record_presence(state.run)
    return {"state": _state(model), "items": [_turn(view) for view in page.turns_after(model.checkpoint, after)]}


@router.post("models/{int:event_id}/chat", response={201: RunResponse})
def start_chat(request: HttpRequest, event_id: Id, payload: ServingPlace) -> Any:
    """Load a model for the chat.

    Starts a run that loads the model and its base, unless such a run is already live. The run ends when the chat has
    not been read for a while."""
    model = catalogue.model_for(request, event_id)
    host = starting.host_for(model.checkpoint)
    form = form_values.fill(partial(DeviceForm, host), payload.dict(exclude_none=True))
    with refusing(ContractError, QueueFull, where="model", message="The model can't be started: {}"):
        run = starting.live_or_start(model.checkpoint, person(request), engine=form.device)
    conversation.record_presence(run)
    return Status(201, shapes.run(queries.run_for(request, run.pk)))


@router.post("models/{int:event_id}/chat/turns", response={201: ItemResponse})
def ask(request: HttpRequest, event_id: Id, payload: ChatQuestion) -> Any:
    """Ask a model and its base a question. GET …/chat returns their answers."""
    model = catalogue.model_for(request, event_id)
    values = payload.dict(exclude_none=True)
    if payload.row is not None and payload.text is None:
        row = rows.of_run(model.run, [payload.row]).rows.get(payload.row)
        if row is None:
            raise Problem(422, f"The dataset has no readable row {payload.row}.", where="row")
        prompt = questions.prompt_of(row)
        values |= {"text": prompt["text"], "system": prompt["system"]}
    form = form_values.fill(AskForm, values)
    with refusing(NotAsked, ContractError, QueueFull, where="model", fix="POST …/chat loads it."):
        turn = questions.ask(model, person(request), questions.question(model, form))
    return Status(201, {"item": _turn(page.view_of(turn))})


@router.post("models/{int:event_id}/chat/stop", response=ServingStopResponse)
def stop_chat(request: HttpRequest, event_id: Id) -> Any:
    """Stop the chat with a model.

    Cancels pending answers and stops the model's run, unless it also serves requests with a key."""
    run = starting.live_run(catalogue.model_for(request, event_id).checkpoint)
    if run is None:
        return {"changed": False}
    conversation.stop(run)
    if not run.served.key_sha256:
        stopping.request_stop(run.latest(), StopMode.NOW, person(request))
    return {"changed": True}


@router.post("models/{int:event_id}/chat/turns/{int:turn_id}/scores", response=ItemResponse)
def scores(request: HttpRequest, event_id: Id, turn_id: Id) -> Any:
    """Score a finished turn of the chat with the rewards that the run was trained on."""
    model = catalogue.model_for(request, event_id)
    view = page.view_of(questions.turn_of(model, turn_id))
    if view.live:
        raise Problem(
            409, "The answers of this turn are not complete.", where="turn", fix="Repeat the request once they are."
        )
    for answer_view in view.answers:
        if answer_view.wants_scores:
            scoring.score(answer_view.answer)
    return {"item": _turn(view)}


def _state(model: SavedModel) -> dict[str, Any] | None:
    state = page.state_of(model.checkpoint)
    if state is None:
        return None
    fields = shapes.columns(state, "status", "text", "ready", "answering")
    return {"run": state.run.pk, **fields, "with_key": state.keyed}


def _endpoint(model: SavedModel, *, with_address: bool) -> dict[str, Any] | None:
    run = starting.live_with_key(model.checkpoint)
    if run is None:
        return None
    view = endpoint.of(run)
    address = {"run": run.pk, "url": view.url if with_address else ""}
    return {**address, **shapes.columns(view, "models", "requests"), "only_on_its_host": view.only_there}


def _turn(view: TurnView) -> dict[str, Any]:
    turn = view.turn
    return {
        "id": turn.pk,
        "by": turn.by.get_username() if turn.by else "",
        **shapes.columns(turn, "at", "system", "prompt", "row", "sampling"),
        "live": view.live,
        "answers": [
            {
                **shapes.columns(answer_view.answer, "model", "text", "tokens", "seconds", "scores"),
                **shapes.columns(answer_view, "ended", "note"),
            }
            for answer_view in view.answers
        ],
    }
