"""The playground of an environment: calling its tools, playing an episode by hand or by a model, and scoring it."""

import json
import secrets
from contextlib import suppress
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils.text import capfirst
from django.views.decorators.http import require_GET, require_POST

from controlplane.catalogue.datasets.queries import ready_versions
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.environments.opening import opened
from controlplane.catalogue.environments.tool_forms import ArgumentsForm
from controlplane.catalogue.rewards import turns
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned import checking
from controlplane.catalogue.versioned.parameter_forms import PARAM, PREFIX, TextField, endpoints, new_prefix
from controlplane.catalogue.versioned.queries import offered_versions, version_for
from controlplane.platform.accounts.roles import admin_required, operator_required
from controlplane.platform.confined.limits import Busy
from runs.insight.scoring import rows
from runs.pages.playground import completions_source, confined_play, episode_play, episode_scoring
from runs.pages.playground.episode_play import MAX_CALLS, MAX_TEXT_CHARS, SECONDS, Play, WrittenMove
from runs.pages.playground.model_turn import ModelPlayer
from workers.environments import signature
from workers.environments.entry import ToolDescription
from workers.environments.executor import Call, Unusable

MAX_SOURCE_CHARS = 100_000


class PlayerForm(forms.Form):
    endpoint = forms.ChoiceField(
        choices=endpoints,
        help_text="An OpenAI-compatible server from the Secrets page.",
        error_messages={"required": "Choose the model's endpoint."},
    )
    model = forms.CharField(
        max_length=200,
        help_text="Its name on that server.",
        error_messages={"required": "Enter the model's name on that server."},
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    temperature = forms.FloatField(
        min_value=0,
        max_value=2,
        required=False,
        help_text="Leave empty for the server’s default.",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    max_tokens = forms.IntegerField(
        label="Tokens per turn", min_value=1, max_value=32_768, initial=1024, help_text="Longer turns are truncated."
    )

    @property
    def problem(self) -> str:
        return " ".join(f"{self[name].label}: {' '.join(map(str, errors))}" for name, errors in self.errors.items())

    def player(self) -> ModelPlayer:
        return ModelPlayer(**self.cleaned_data)


@operator_required
@require_GET
def page(request: HttpRequest, environment_id: int, number: int) -> HttpResponse:
    """Show the playground of an environment, without starting an episode."""
    version = version_for(EnvironmentVersion, request, environment_id, number)
    tools: list[ToolDescription] = []
    context: dict[str, Any] = {}
    try:
        environment = opened(version.specs, version.episode_limits)
        tools, context["has_game"] = environment.tools, environment.has_game
    except (Unusable, Busy) as error:
        context["problem"] = str(error)
    context |= {
        "environment": version.environment,
        "version": version,
        "tools": tools,
        "form": ArgumentsForm(tools[0], prefix=new_prefix()) if tools else None,
        "dataset_versions": ready_versions(request),
        "seed": secrets.randbelow(10_000),
        "player": PlayerForm(),
    }
    return render(request, "catalogue/environments/play.html", context)


@operator_required
@require_GET
def call_row(request: HttpRequest, environment_id: int, number: int) -> HttpResponse:
    """Render fields for the arguments of ?tool=, with ?row=1 as a removable call of a move."""
    version = version_for(EnvironmentVersion, request, environment_id, number)
    tool = None
    with suppress(Unusable):
        tool = next((described for described in _tools(version) if described.name == request.GET.get("tool")), None)
    if tool is None:
        return HttpResponse("There is no such tool.", status=404, content_type="text/plain")
    context = {"form": ArgumentsForm(tool, prefix=new_prefix()), "removable": bool(request.GET.get("row"))}
    return render(request, "catalogue/environments/_call.html", context)


@operator_required
@require_POST
def call(request: HttpRequest, environment_id: int, number: int) -> HttpResponse:
    version = version_for(EnvironmentVersion, request, environment_id, number)
    context: dict[str, Any] = {}
    try:
        calls, forms = _calls(request.POST, _tools(version))
        context["forms"] = [form for form in forms if form.errors]
        if calls:
            context["answer"], context["cut"] = confined_play.call(version.specs, version.episode_limits, calls[0])
            context["limits"] = version.episode_limits
            context["characters"] = episode_play.max_characters(version.episode_limits)
        elif not context["forms"]:
            context["problem"] = "Choose a tool."
    except Unusable as error:
        context["problem"] = str(error)
    return render(request, "catalogue/environments/_answer.html", context)


@operator_required
@require_POST
def play(request: HttpRequest, environment_id: int, number: int) -> HttpResponse:
    """Replay the moves and add the form's move. ?back=1 drops the last move, ?stay=1 adds none, ?begin=1 starts
    again."""
    return _play(request, environment_id, number, by_model=False)


@operator_required
@require_POST
def model(request: HttpRequest, environment_id: int, number: int) -> HttpResponse:
    """Replay the moves and let a model write one more. With ?on=1 the page then requests the next one automatically."""
    return _play(request, environment_id, number, by_model=True)


def _play(request: HttpRequest, environment_id: int, number: int, *, by_model: bool) -> HttpResponse:
    version = version_for(EnvironmentVersion, request, environment_id, number)
    place, form, starts_over = _row(request), PlayerForm(request.POST), bool(request.GET.get("begin"))
    try:
        moves = [] if starts_over else episode_play.read_moves(request.POST.get("moves", ""))
    except ValueError as error:
        return _render_play(request, version, Play(problem=str(error), limits=version.episode_limits), place, [])
    invalid_forms: list[ArgumentsForm] = []
    if request.GET.get("back") and not by_model:
        moves = moves[:-1]
    played = list(moves)
    if not (by_model or starts_over or request.GET.get("stay") or request.GET.get("back")):
        try:
            move, invalid_forms = _move(request.POST, _tools(version))
        except Unusable as error:
            result = Play(problem=str(error), limits=version.episode_limits, kept=played)
            return _render_play(request, version, result, place, [])
        moves += [] if invalid_forms else [move]
    player = form.player() if by_model and form.is_valid() else None
    seed = _whole_number(request.POST.get("seed"))
    result = confined_play.play(version.specs, version.episode_limits, place.row, seed, moves, player)
    result.kept = played
    if by_model and player is None and not (result.end or result.problem):
        result.not_written = form.problem
    return _render_play(request, version, result, place, invalid_forms, on=by_model and bool(request.GET.get("on")))


@operator_required
@require_POST
def scores(request: HttpRequest, environment_id: int, number: int) -> HttpResponse:
    version_for(EnvironmentVersion, request, environment_id, number)
    reward_versions = offered_versions(RewardVersion, request.POST.get("reward_version"))
    version = reward_versions.filter(pk=_whole_number(request.POST.get("reward_version"))).first()
    context: dict[str, Any] = {"config": version}
    try:
        messages = episode_scoring.read(request.POST.get("episode", ""))
    except ValueError as error:
        context["problem"] = str(error)
    else:
        if version is None:
            context["problem"] = "Choose a reward config."
        else:
            scoring_turn = turns.turn(SECONDS)
            context["scores"] = episode_scoring.score(version.specs, messages, _row(request).row, scoring_turn)
    return render(request, "catalogue/environments/_scores.html", context)


@admin_required
@require_POST
def check_tool(request: HttpRequest) -> HttpResponse:
    """Render a tool of the editor's form (?of=its prefix) as the model sees it, without running its code."""
    prefix = request.GET.get("of", "")
    name = f"{prefix}-{PARAM}source"
    if not PREFIX.fullmatch(prefix) or name not in request.POST:
        return HttpResponse("There is no such tool in the form.", status=404, content_type="text/plain")
    source = TextField(required=False, strip=False).to_python(request.POST[name])
    try:
        if len(source) > MAX_SOURCE_CHARS:
            raise signature.NotATool(f"it is longer than {MAX_SOURCE_CHARS:,} characters")
        tool = checking.describe_tool(source)
    except signature.NotATool as error:
        return render(request, "catalogue/environments/_check.html", {"problem": f"{capfirst(str(error))}."})
    tool_json = json.dumps(tool.as_dict(), indent=2, ensure_ascii=False)
    return render(request, "catalogue/environments/_check.html", {"tool": (tool.name, tool_json)})


def _render_play(
    request: HttpRequest,
    version: Any,
    result: Play,
    place: rows.RowPlace,
    invalid_forms: list[ArgumentsForm],
    *,
    on: bool = False,
) -> HttpResponse:
    context = {
        "environment": version.environment,
        "version": version,
        "play": result,
        "prompt": rows.shown_prompt(place.row),
        "row_problem": place.problem,
        "wrong": invalid_forms,
        "text": request.POST.get("text", "") if invalid_forms or result.not_written else "",
        "on": on and not (result.end or result.problem or result.not_written),
        "reward_version": _whole_number(request.POST.get("reward_version")),
        "reward_versions": offered_versions(RewardVersion) if result.turns else (),
    }
    return render(request, "catalogue/environments/_episode.html", context)


def _tools(version: Any) -> list[ToolDescription]:
    """Open the environment to list its tools. Raises Unusable, and Busy: without the tools, calls can't be read."""
    return opened(version.specs, version.episode_limits).tools


def _row(request: HttpRequest) -> rows.RowPlace:
    version_id = request.POST.get("dataset_version", "")
    if version_id:
        version = ready_versions(request).filter(pk=_whole_number(version_id)).first()
        return rows.row_at(version, _whole_number(request.POST.get("place")))
    prompt, answer = (request.POST.get(name, "")[:MAX_TEXT_CHARS] for name in ("prompt", "row_answer"))
    row = {**rows.EXAMPLE_ROW, "prompt": [{"role": "user", "content": prompt}], "answer": answer or None}
    return rows.RowPlace(row)


def _move(post: QueryDict, tools: list[ToolDescription]) -> tuple[WrittenMove, list[ArgumentsForm]]:
    """Parse the form's move, and return it and the forms of calls with errors."""
    calls, forms = _calls(post, tools)
    text = post.get("text", "").replace("\r\n", "\n")[:MAX_TEXT_CHARS]
    return WrittenMove(text, tuple(calls)), [form for form in forms if form.errors]


def _calls(post: QueryDict, tools: list[ToolDescription]) -> tuple[list[Call], list[ArgumentsForm]]:
    by_name = {tool.name: tool for tool in tools}
    calls, forms = [], []
    for prefix in dict.fromkeys(post.getlist("call")[:MAX_CALLS]):
        tool = by_name.get(post.get(f"{prefix}-tool", ""))
        if tool is None or not PREFIX.fullmatch(prefix):
            continue
        form = ArgumentsForm(tool, post, prefix=prefix)
        forms.append(form)
        if form.is_valid():
            calls.append(Call(tool.name, episode_play.utf8_safe(form.arguments())))
    return calls, forms


def _whole_number(text: object) -> int:
    return completions_source.number(text, digits=9) or 0
