"""The playground: rewards on completions, replays of stored completions, environments' tools and episodes."""

import dataclasses
from typing import Annotated, Any, Literal

from django.http import Http404, HttpRequest
from ninja import Field

from controlplane.catalogue.datasets.queries import ready_versions
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.rewards import config_yaml, turns
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned import queries as versioned_queries
from controlplane.catalogue.versioned import saving
from controlplane.platform import safe_yaml
from controlplane.platform.accounts.roles import person
from runs.api import form_values, shapes
from runs.api.access import Problem, Router, refusing
from runs.api.shapes import Id, RequestBody, ResponseBody
from runs.engine import queries
from runs.insight.scoring import rows, scoring
from runs.pages.playground import completions_source, confined_play, episode_play, episode_scoring, rescoring
from runs.pages.playground.episode_play import MAX_CALLS, MAX_MOVES, MAX_TEXT_CHARS, SECONDS, Play, WrittenMove
from runs.pages.playground.episode_views import PlayerForm
from runs.pages.playground.model_turn import ModelPlayer
from workers.contract.run.spec import RewardSpec
from workers.environments.executor import Call, EnvironmentAnswer, Unusable

router = Router(tags=["playground"])


class PlaygroundRow(RequestBody):
    dataset_version: Id | None = Field(None, description="The id of a dataset version. If null, the row in this body.")
    place: Annotated[int, Field(ge=0, le=2**31)] = Field(0, description="The row's position, counting from 0.")
    prompt: str = Field("", max_length=MAX_TEXT_CHARS)
    answer: str = Field("", max_length=MAX_TEXT_CHARS)
    test_cases: list[Annotated[str, Field(max_length=MAX_TEXT_CHARS)]] = Field(
        [], max_length=completions_source.MAX_TESTS
    )


class RewardSource(RequestBody):
    reward_version: Id | None = Field(None, description="The id of a version of a reward config.")
    document: str = Field("", description="A config as YAML, used instead of reward_version. It need not be saved.")
    ask: bool = Field(False, description="If true, also run components that call other servers.")


class TryRewards(RewardSource):
    row: PlaygroundRow
    completions: list[Annotated[str, Field(max_length=completions_source.EDITABLE_CHARS)]] = Field(
        min_length=1, max_length=completions_source.MAX_COMPLETIONS
    )


class ReplaySettings(RewardSource):
    run: str = Field(max_length=64)
    which: Literal["spread", "newest", "one"] = "spread"
    step: Annotated[int, Field(ge=0, le=2**31)] | None = Field(None, description="The step, if `which` is `one`.")
    groups: Literal[16, 64, 256] = 64


class ToolCall(RequestBody):
    tool: str = Field(max_length=200)
    arguments: dict[str, Any] = {}


class EpisodeMove(RequestBody):
    text: str = Field("", max_length=MAX_TEXT_CHARS)
    calls: list[ToolCall] = Field([], max_length=MAX_CALLS)


class EpisodeMoves(RequestBody):
    row: PlaygroundRow
    seed: Annotated[int, Field(ge=0, le=2**31)] = 0
    moves: list[EpisodeMove] = Field([], max_length=MAX_MOVES, description="The model's turns.")


class EpisodePlayer(RequestBody):
    endpoint: str = Field(max_length=40, description="The name of a secret for an OpenAI-compatible server.")
    model: str = Field(max_length=200, description="The model's name on that server.")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        None, description="Sampling temperature. If null, the server's default."
    )
    max_tokens: Annotated[int, Field(ge=1, le=32_768)] = Field(1024, description="Maximum number of tokens per turn.")


class PlayedByModel(EpisodeMoves):
    player: EpisodePlayer


class Score(RequestBody):
    row: PlaygroundRow
    reward_version: Id
    messages: list[dict[str, Any]] = Field(
        max_length=4 * MAX_MOVES, description="An episode's messages, as returned by …/play."
    )


class RewardTrialResponse(ResponseBody):
    components: list[dict[str, Any]]
    """The components, each with the `mean` and standard `deviation` of its scores and its `share` of the variance of
    the totals. The shares add up to 1."""
    completions: list[dict[str, Any]]
    """The completions as ordered in the request, each with the `scores` of the components, `total` and `advantage`."""
    mean: float | None
    """Mean of the totals. null if no completion has a total."""
    deviation: float | None
    """Standard deviation of the totals, by which advantages are scaled. null if no completion has a total."""
    problem: str
    """Why a row other than the requested one was used. Empty if it was the requested row."""


@router.post("rewards/try", response=RewardTrialResponse)
def try_rewards(request: HttpRequest, payload: TryRewards) -> Any:
    """Score completions with a reward config.

    Totals and advantages are computed as training would compute them for one group."""
    specs, aggregation = _specs(request, payload)
    example = _row(request, payload.row)
    turn = turns.turn(scoring.ASKING_SECONDS if payload.ask else scoring.SECONDS)
    trial = scoring.try_on(
        specs, example.row, payload.completions, aggregation=aggregation, trial_turn=turn, ask=payload.ask
    )
    return {
        "components": [
            {
                **shapes.columns(component.column.spec, "name", "weight"),
                "how": component.column.how.value,
                "why": component.column.why,
                **shapes.columns(component, "mean", "deviation", "share"),
                "failures": [failure.message for failure in component.column.failures],
            }
            for component in trial.columns
        ],
        "completions": [
            {
                "scores": list(map(dataclasses.asdict, component.scores)),
                **shapes.columns(component, "total", "advantage"),
            }
            for component in trial.group
        ],
        **shapes.columns(trial, "mean", "deviation"),
        "problem": example.problem,
    }


@router.post("rewards/replay", response=shapes.ItemResponse)
def replay(request: HttpRequest, payload: ReplaySettings) -> Any:
    """Score a run's stored completions with a different reward config.

    Compares the order of the completions within each group. No GPUs are used."""
    specs, aggregation = _specs(request, payload)
    result = rescoring.rescore(
        queries.run_for(request, payload.run),
        specs,
        aggregation=aggregation,
        selection=payload.which,
        step=payload.step,
        count=payload.groups,
        ask=payload.ask,
    )
    if result.replay is None:
        raise Problem(409, result.problem, where="run")
    return {"item": _replay(result.replay)}


@router.post("environments/{int:environment_id}/{int:number}/call", response=shapes.ItemResponse)
def call(request: HttpRequest, environment_id: Id, number: Id, payload: ToolCall) -> Any:
    """Call a tool of an environment in a new episode. The response is what the model would read."""
    version = versioned_queries.version_for(EnvironmentVersion, request, environment_id, number)
    with refusing(Unusable, where="environment"):
        response, is_truncated = confined_play.call(version.specs, version.episode_limits, _call(payload))
    return {"item": _tool_response(response) | {"cut": is_truncated}}


@router.post("environments/{int:environment_id}/{int:number}/play", response=shapes.ItemResponse)
def play(request: HttpRequest, environment_id: Id, number: Id, payload: EpisodeMoves) -> Any:
    """Play an episode of an environment.

    Nothing is stored, so send all moves from the beginning each time. Without moves, the response contains the tools
    and the opening."""
    version = versioned_queries.version_for(EnvironmentVersion, request, environment_id, number)
    return {"item": _play(request, version, payload, None)}


@router.post("environments/{int:environment_id}/{int:number}/model", response=shapes.ItemResponse)
def model(request: HttpRequest, environment_id: Id, number: Id, payload: PlayedByModel) -> Any:
    """Let a model play the next turn of an episode.

    The turn follows the moves sent. `not_written` says why the model wrote no turn."""
    version = versioned_queries.version_for(EnvironmentVersion, request, environment_id, number)
    player = form_values.fill(PlayerForm, payload.player.dict(), where="player").player()
    return {"item": _play(request, version, payload, player)}


@router.post("environments/{int:environment_id}/{int:number}/scores", response=shapes.ItemResponse)
def scores(request: HttpRequest, environment_id: Id, number: Id, payload: Score) -> Any:
    """Score an episode of an environment with a reward config, as a run would."""
    versioned_queries.version_for(EnvironmentVersion, request, environment_id, number)
    version = _reward_version(payload.reward_version)
    with refusing(ValueError, where="messages", status=422):
        messages = episode_scoring.check_messages(payload.messages)
    episode_scores = episode_scoring.score(version.specs, messages, _row(request, payload.row).row, turns.turn(SECONDS))
    components = [
        {"name": part.spec.name, **shapes.columns(part, "value", "turns", "note", "failed")}
        for part in episode_scores.components
    ]
    return {"item": {**shapes.columns(episode_scores, "total", "turns"), "components": components}}


def _specs(request: HttpRequest, payload: RewardSource) -> tuple[list[RewardSpec], str]:
    """Return the components and the aggregation of a config. Raises Problem if the config is not valid."""
    if payload.reward_version is not None:
        version = _reward_version(payload.reward_version)
        return version.specs, version.aggregation
    with refusing(safe_yaml.YamlRefused, where="document", status=422, fix="Send valid YAML, or a reward_version."):
        editor = config_yaml.read(payload.document.encode(errors="replace"))
    # A taken name doesn't affect scoring.
    mistakes = [mistake for mistake in editor.wrong if mistake[0] != editor.form["name"].id_for_label]
    first_mistake = next((f"{label}: {errors}" if label else str(errors) for _, label, errors in mistakes), "")
    if first_mistake or not editor.rows:
        raise Problem(422, first_mistake or str(editor.problem) or "The config has no components.", where="document")
    specs = [form.spec() for form in editor.rows]
    if not all(saving.may_use_part(RewardVersion, person(request), spec) for spec in specs):
        raise Problem(403, saving.code_refused(RewardVersion), where="document")
    return specs, str(editor.form.cleaned_data.get("aggregation") or "")


def _reward_version(pk: int) -> RewardVersion:
    version = RewardVersion.objects.select_related("config").filter(pk=pk).first()
    if version is None:
        raise Problem(422, f"No version of a reward config has the id {pk}.", where="reward_version")
    return version


def _row(request: HttpRequest, payload: PlaygroundRow) -> rows.RowPlace:
    if payload.dataset_version is not None:
        version = ready_versions(request).filter(pk=payload.dataset_version).first()
        if version is None:
            raise Http404(f"There is no ready dataset version {payload.dataset_version}.")
        return rows.row_at(version, payload.place)
    prompt = [{"role": "user", "content": payload.prompt}]
    row = {**rows.EXAMPLE_ROW, "prompt": prompt, "answer": payload.answer or None, "test_cases": payload.test_cases}
    return rows.RowPlace(row)


def _play(request: HttpRequest, version: EnvironmentVersion, payload: EpisodeMoves, player: ModelPlayer | None) -> Any:
    moves = [WrittenMove(move.text, tuple(map(_call, move.calls))) for move in payload.moves]
    row = _row(request, payload.row).row
    result = confined_play.play(version.specs, version.episode_limits, row, payload.seed, moves, player)
    if result.problem:
        raise Problem(409, result.problem, where="environment")
    return _play_fields(result)


def _call(payload: ToolCall) -> Call:
    return Call(payload.tool, episode_play.utf8_safe(payload.arguments))


def _tool_response(response: EnvironmentAnswer) -> dict[str, Any]:
    return {**shapes.columns(response, "text", "seconds", "reward", "done", "failed"), "error": str(response.error)}


def _play_fields(result: Play) -> dict[str, Any]:
    return {
        "tools": [tool.as_dict() for tool in result.tools],
        **shapes.columns(result, "opening", "messages"),
        "end": str(result.end),
        "end_words": result.end_sentence,
        **shapes.columns(result, "reward", "cut", "not_written"),
    }


def _replay(replay: Any) -> dict[str, Any]:
    fields = ("how", "why", "mean", "before", "share", "none", "failed")
    return {
        "groups": len(replay.groups),
        **shapes.columns(replay, "requested", "completions"),
        "steps": list(replay.steps),
        "pairs": dataclasses.asdict(replay.pairs),
        "reordered": replay.reordered,
        "components": [{"name": part.spec.name, **shapes.columns(part, *fields)} for part in replay.parts],
    }
