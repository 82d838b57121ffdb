"""The chat with a saved model: its page, its turns, and the parts that the page polls."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.keyset import whole_parameter
from runs.engine.artifacts import saved_models as catalogue
from runs.engine.artifacts.saved_models import SavedModel
from runs.engine.scheduling import stopping
from runs.engine.scheduling.limits import QueueFull
from runs.engine.served import conversation, starting
from runs.engine.served.conversation import NotAsked
from runs.insight.scoring import rows
from runs.pages.served import page, questions, scoring
from runs.pages.served.forms import AskForm, DeviceForm
from workers.contract.wire.documents import ContractError
from workers.contract.wire.names import StopMode


@require_http_methods(["GET", "HEAD", "POST"])
def chat(request: HttpRequest, event_id: int) -> HttpResponseBase:
    """Show the chat; POST starts the model unless it is already being served."""
    model = catalogue.model_for(request, event_id)
    if request.method == "POST":
        return _start(request, model)
    turns = page.turns_after(model.checkpoint, 0)
    context = _state(request, model) | {
        "turns": turns,
        "after": turns[-1].turn.pk if turns else 0,
        "form": AskForm(initial={**turns[-1].turn.sampling, "system": turns[-1].turn.system} if turns else {}),
        "prompts": model.run.dataset_version.rows,
    }
    return render(request, "pages/served/chat.html", context)


@operator_required
def _start(request: HttpRequest, model: SavedModel) -> HttpResponseBase:
    form = DeviceForm(starting.host_for(model.checkpoint), request.POST)
    try:
        if not form.is_valid():
            raise ContractError("this host has no such device")
        conversation.record_presence(starting.live_or_start(model.checkpoint, person(request), engine=form.device))
    except (ContractError, QueueFull) as error:
        messages.error(request, f"The model can't be started: {error}")
        return redirect("model", event_id=model.checkpoint.event.pk)
    return redirect("model_chat", event_id=model.checkpoint.event.pk)


@require_safe
def state(request: HttpRequest, event_id: int) -> HttpResponse:
    """Render the model's state and the new turns. With ?leaving, the page reports that it is being closed."""
    model = catalogue.model_for(request, event_id)
    if request.GET.get("leaving"):
        if run := starting.live_run(model.checkpoint):
            conversation.record_departure(run)
        return HttpResponse(status=204)
    after = whole_parameter(request, "after", 0, 0, 2**62)
    turns, now = page.turns_after(model.checkpoint, after), _state(request, model)
    if not turns and request.GET.get("mark") == now["state_token"]:
        return HttpResponse(status=204)  # unchanged: keep what the user may be clicking
    context = now | {"asked_again": True, "new_turns": turns, "after": turns[-1].turn.pk if turns else after}
    return render(request, "pages/served/_state.html", context)


@require_safe
def turn(request: HttpRequest, event_id: int, turn_id: int) -> HttpResponse:
    """Render one turn; the page polls it while it is being answered."""
    model = catalogue.model_for(request, event_id)
    chat_turn = questions.turn_of(model, turn_id)
    conversation.record_presence(chat_turn.run)
    return render(request, "pages/served/_turn.html", _about(request, model) | {"view": page.view_of(chat_turn)})


@require_POST
@operator_required
def ask(request: HttpRequest, event_id: int) -> HttpResponse:
    """Ask the served models, starting them if they have stopped. `repeated_turn` is the id of a turn to repeat."""
    model = catalogue.model_for(request, event_id)
    form, repeated_turn = AskForm(request.POST), request.POST.get("again", "")
    status = 200
    try:
        if repeated_turn.isdecimal():
            questions.ask(
                model, person(request), questions.repeated_question(questions.turn_of(model, int(repeated_turn)))
            )
            return _poll_at_once(HttpResponse(status=204))
        if form.is_valid():
            questions.ask(model, person(request), questions.question(model, form))
            form = AskForm(initial={**form.cleaned_data, "text": "", "new": False, "row": None})
        else:
            status = 422
    except (NotAsked, ContractError, QueueFull) as error:
        form = form if form.is_bound else AskForm()
        form.add_error(None, str(error))
        status = 422
    context = _about(request, model) | {"form": form, "choose_first": _must_choose_device(model)}
    context["prompts"] = model.run.dataset_version.rows
    response = render(request, "pages/served/_ask.html", context, status=status)
    return _poll_at_once(response) if status == 200 else response


@require_POST
@operator_required
def stop(request: HttpRequest, event_id: int) -> HttpResponse:
    """Stop the answers in progress. Also stop the model, unless what=answer or it has a key for requests."""
    model = catalogue.model_for(request, event_id)
    if run := starting.live_run(model.checkpoint):
        conversation.stop(run)
        if request.POST.get("what") != "answer" and not run.served.key_sha256:
            stopping.request_stop(run.latest(), StopMode.NOW, person(request))
    return _poll_at_once(HttpResponse(status=204))


@require_POST
@operator_required
def scores(request: HttpRequest, event_id: int, turn_id: int) -> HttpResponse:
    """Score a turn's finished answers with the run's own rewards."""
    model = catalogue.model_for(request, event_id)
    view = page.view_of(questions.turn_of(model, turn_id))
    if not view.live:
        for answer_view in view.answers:
            if answer_view.wants_scores:
                scoring.score(answer_view.answer)
    return render(request, "pages/served/_turn.html", _about(request, model) | {"view": view, "scored": True})


@require_safe
@operator_required
def prompt(request: HttpRequest, event_id: int) -> HttpResponse:
    """Render the form with a prompt from the run's dataset version."""
    model = catalogue.model_for(request, event_id)
    version = model.run.dataset_version
    dataset_row = rows.row_at(version, whole_parameter(request, "place", 0, 0, 10**9))
    # Settings of the form survive a change of prompt.
    typed = {name: request.GET[name] for name in ("temperature", "max_tokens", "seed") if name in request.GET}
    context = _about(request, model) | {
        "form": AskForm(initial={**typed, **questions.prompt_of(dataset_row.row), "new": True}),
        "prompts": version.rows,
        "place": dataset_row,
        "next": dataset_row.index + 1,
        "choose_first": _must_choose_device(model),
    }
    return render(request, "pages/served/_ask.html", context)


# --- helpers --------------------------------------------------------------------------------------------------


def _about(request: HttpRequest, model: SavedModel) -> dict[str, Any]:
    return {"model": model, "event_id": model.checkpoint.event.pk, "may_operate": person(request).may_operate}


def _must_choose_device(model: SavedModel) -> bool:
    checkpoint = model.checkpoint
    return not starting.live_run(checkpoint) and not starting.last_engine(checkpoint, starting.host_for(checkpoint))


def _state(request: HttpRequest, model: SavedModel) -> dict[str, Any]:
    served = page.state_of(model.checkpoint)
    about = _about(request, model) | {"served": served, "state_token": served.state_token if served else "none"}
    if served and served.live:
        conversation.record_presence(served.run)
        return about
    host = starting.host_for(model.checkpoint)
    device_form = DeviceForm(host, initial={"place": starting.usual_engine(host)})
    may_use_vllm = len(device_form.fields["place"].choices) > 2 and not model.checkpoint.is_adapter  # type: ignore[attr-defined]
    vllm = "; with vLLM, only the trained one" if may_use_vllm else ""
    not_loaded = f"Not loaded yet. Two models answer: the trained one and the one before training{vllm}."
    return about | {"device_form": device_form, "not_loaded": not_loaded, "choose_first": _must_choose_device(model)}


def _poll_at_once(response: HttpResponse) -> HttpResponse:
    """Add a header to the response that makes the page poll at once."""
    response["HX-Trigger"] = "asked"
    return response
