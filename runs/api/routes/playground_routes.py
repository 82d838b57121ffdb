"""Trying things before a run: rewards on completions, a config on a run's stored ones, tools and episodes of an
environment."""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from typing import Annotated, Any, Literal

from django.http import Http404, HttpRequest
from ninja import Field

from controlplane.catalogue.datasets.queries import ready_versions
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.rewards import config_yaml, turns
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned import permissions
from controlplane.catalogue.versioned import queries as versioned_queries
from controlplane.platform import safe_yaml
from controlplane.platform.accounts.roles import person
from runs.api import form_values, shapes
from runs.api.access import Problem, Router
from runs.api.shapes import Id, RequestBody, ResponseBody
from runs.engine import queries
from runs.insight.scoring import rows, scoring
from runs.pages.playground import completions_source, episode_play, episode_scoring, model_turn, rescoring
from runs.pages.playground.episode_play import LONGEST_TEXT, MOST_CALLS, MOST_MOVES, SECONDS, Play, WrittenMove
from runs.pages.playground.player_form import PlayerForm
from workers.contract.run.spec import RewardSpec
from workers.environments.executor import Call, EnvironmentAnswer, Unusable
from workers.rewards.tools import Tools

router = Router(tags=["playground"])


class PlaygroundRow(RequestBody):
    dataset_version: Id | None = Field(None, description="The id of a dataset version; None: a row of your own.")
    place: Annotated[int, Field(ge=0, le=2**31)] = Field(0, description="The row's position, from 0.")
    prompt: str = Field("", max_length=LONGEST_TEXT)
    answer: str = Field("", max_length=LONGEST_TEXT)
    test_cases: list[Annotated[str, Field(max_length=LONGEST_TEXT)]] = Field(
        [], max_length=completions_source.MOST_TESTS
    )


class Rewards(RequestBody):
    reward_version: Id | None = Field(None, description="The id of a version of a reward config.")
    document: str = Field("", description="Or a config as YAML, saved or not.")
    ask: bool = Field(False, description="Score with components that call other servers, too.")


class Try(Rewards):
    row: PlaygroundRow
    completions: list[Annotated[str, Field(max_length=completions_source.EDITABLE_CHARS)]] = Field(
        min_length=1, max_length=completions_source.MAX_COMPLETIONS
    )


class ReplaySettings(Rewards):
    run: str = Field(max_length=64)
    which: Literal["spread", "newest", "one"] = "spread"
    step: Annotated[int, Field(ge=0, le=2**31)] | None = Field(None, description="Of which: one.")
    groups: Literal[16, 64, 256] = 64


class OneCall(RequestBody):
    tool: str = Field(max_length=200)
    arguments: dict[str, Any] = {}


class OneMove(RequestBody):
    text: str = Field("", max_length=LONGEST_TEXT)
    calls: list[OneCall] = Field([], max_length=MOST_CALLS)


class EpisodeMoves(RequestBody):
    row: PlaygroundRow
    seed: Annotated[int, Field(ge=0, le=2**31)] = 0
    moves: list[OneMove] = Field([], max_length=MOST_MOVES, description="What the model says, turn by turn.")


class EpisodePlayer(RequestBody):
    endpoint: str = Field(max_length=40, description="An OpenAI-compatible server among the secrets.")
    model: str = Field(max_length=200, description="By its name on that server.")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(None, description="None: the server's own.")
    max_tokens: Annotated[int, Field(ge=1, le=32_768)] = Field(1024, description="Of one turn.")


class PlayedByModel(EpisodeMoves):
    player: EpisodePlayer


class Score(RequestBody):
    row: PlaygroundRow
    reward_version: Id
    messages: list[dict[str, Any]] = Field(max_length=4 * MOST_MOVES, description="As an episode's answer has them.")


class Tried(ResponseBody):
    components: list[dict[str, Any]]
    """Each with `mean` and `deviation` of its scores, and its `share` of the variance of the totals, 1 in all."""
    completions: list[dict[str, Any]]
    """In the order of the request: `scores` of each component, `total` and `advantage`."""
    mean: float | None
    """Of the totals. null: no completion has one."""
    deviation: float | None
    """Standard deviation of the totals; advantages are scaled by it. null: no completion has one."""
    problem: str
    """Why the row is another one than asked for. Empty: it is that one."""


@router.post("rewards/try", response=Tried)
def try_rewards(request: HttpRequest, payload: Try) -> Any:
    """Score completions by rewards.

    By the components of a config, with totals and advantages as training would have them for one group."""
    specs, aggregation = _specs(request, payload)
    place = _row(request, payload.row)
    own = turns.turn(scoring.ASKING if payload.ask else scoring.SECONDS)
    trial = scoring.try_on(specs, place.row, payload.completions, aggregation=aggregation, own=own, ask=payload.ask)
    return {
        "components": [
            {
                "name": one.column.spec.name,
                "weight": one.column.spec.weight,
                "how": one.column.how.value,
                "why": one.column.why,
                "mean": one.mean,
                "deviation": one.deviation,
                "share": one.share,
                "failures": [failure.message for failure in one.column.failures],
            }
            for one in trial.columns
        ],
        "completions": [
            {
                "scores": [dataclasses.asdict(cell) for cell in scored.scores],
                "total": scored.total,
                "advantage": scored.advantage,
            }
            for scored in trial.group
        ],
        "mean": trial.mean,
        "deviation": trial.deviation,
        "problem": place.problem,
    }


@router.post("rewards/replay", response=shapes.ItemResponse)
def replay(request: HttpRequest, payload: ReplaySettings) -> Any:
    """Replay a run with other rewards.

    Score a run's stored completions by another config, and compare the order of each group, before it costs GPU
    hours."""
    specs, aggregation = _specs(request, payload)
    found = rescoring.rescored(
        queries.run_for(request, payload.run),
        specs,
        aggregation=aggregation,
        which=payload.which,
        step=payload.step,
        count=payload.groups,
        ask=payload.ask,
    )
    if found.replay is None:
        raise Problem(409, found.problem, where="run")
    return {"item": _replay(found.replay)}


@router.post("environments/{int:environment_id}/{int:number}/call", response=shapes.ItemResponse)
def call(request: HttpRequest, environment_id: Id, number: Id, payload: OneCall) -> Any:
    """Call a tool of an environment. In an episode of its own. The answer is what the model would read."""
    version = versioned_queries.version_for(EnvironmentVersion, request, environment_id, number)
    until = time.monotonic() + SECONDS
    try:
        answer, cut = episode_play.call(version, turns.turn(SECONDS).tools, _call(payload), until)
    except Unusable as error:
        raise Problem(409, str(error), where="environment") from None
    return {"item": _answer(answer) | {"cut": cut}}


@router.post("environments/{int:environment_id}/{int:number}/play", response=shapes.ItemResponse)
def play(request: HttpRequest, environment_id: Id, number: Id, payload: EpisodeMoves) -> Any:
    """Play an episode of an environment.

    All moves, from the beginning. Nothing is kept: send them again with the next one. Without moves the answer has
    the tools and the opening."""
    return {
        "item": _play(
            request, versioned_queries.version_for(EnvironmentVersion, request, environment_id, number), payload, None
        )
    }


@router.post("environments/{int:environment_id}/{int:number}/model", response=shapes.ItemResponse)
def model(request: HttpRequest, environment_id: Id, number: Id, payload: PlayedByModel) -> Any:
    """Let a model play a turn of an episode.

    After these moves. `not_written` says why the model has written no turn."""
    version = versioned_queries.version_for(EnvironmentVersion, request, environment_id, number)
    chosen = form_values.filled(PlayerForm(), PlayerForm, payload.player.dict(), where="player").player()
    return {"item": _play(request, version, payload, chosen)}


@router.post("environments/{int:environment_id}/{int:number}/scores", response=shapes.ItemResponse)
def scores(request: HttpRequest, environment_id: Id, number: Id, payload: Score) -> Any:
    """Score an episode of an environment. By a reward config, as a run would."""
    versioned_queries.version_for(EnvironmentVersion, request, environment_id, number)
    version = _reward_version(payload.reward_version)
    try:
        messages = episode_scoring.known(payload.messages)
    except ValueError as error:
        raise Problem(422, str(error), where="messages") from None
    found = episode_scoring.score(version.specs, messages, _row(request, payload.row).row, turns.turn(SECONDS))
    components = [
        {"name": one.spec.name, "value": one.value, "turns": one.turns, "note": one.note, "failed": one.failed}
        for one in found.components
    ]
    return {"item": {"total": found.total, "turns": found.turns, "components": components}}


def _specs(request: HttpRequest, payload: Rewards) -> tuple[list[RewardSpec], str]:
    """The components and the aggregation. Raises Problem."""
    if payload.reward_version is not None:
        version = _reward_version(payload.reward_version)
        return version.specs, version.aggregation
    try:
        editor = config_yaml.read(payload.document.encode(errors="replace"))
    except safe_yaml.YamlRefused as error:
        raise Problem(422, str(error), where="document", fix="Send it, or a reward_version.") from None
    wrong = next((f"{what}: {errors}" if what else str(errors) for _, what, errors in _scoring(editor)), "")
    if wrong or not editor.components:
        raise Problem(422, wrong or str(editor.problem) or "There is no component.", where="document")
    specs = [form.spec() for form in editor.components]
    if not all(permissions.may_use(RewardVersion, person(request), spec) for spec in specs):
        raise Problem(403, permissions.refused(RewardVersion), where="document")
    return specs, str(editor.config.cleaned_data.get("aggregation") or "")


def _scoring(editor: Any) -> list[tuple[str, str, str]]:
    """The mistakes that scoring depends on: it needs no name that is free."""
    return [one for one in editor.wrong if one[0] != editor.config["name"].id_for_label]


def _reward_version(pk: int) -> RewardVersion:
    version = RewardVersion.objects.select_related("config").filter(pk=pk).first()
    if version is None:
        raise Problem(422, f"There is no version {pk} of a reward config.", where="reward_version")
    return version


def _row(request: HttpRequest, asked: PlaygroundRow) -> rows.RowPlace:
    if asked.dataset_version is not None:
        version = ready_versions(request).filter(pk=asked.dataset_version).first()
        if version is None:
            raise Http404(f"There is no ready dataset version {asked.dataset_version}.")
        return rows.at(version, asked.place)
    prompt = [{"role": "user", "content": asked.prompt}]
    own = {**rows.MADE_UP, "prompt": prompt, "answer": asked.answer or None, "test_cases": asked.test_cases}
    return rows.RowPlace(own)


def _play(
    request: HttpRequest, version: EnvironmentVersion, asked: EpisodeMoves, player: model_turn.ModelPlayer | None
) -> Any:
    moves = [WrittenMove(one.text, tuple(_call(each) for each in one.calls)) for one in asked.moves]
    until, tools = time.monotonic() + SECONDS, turns.turn(SECONDS).tools
    row = _row(request, asked.row).row

    write = partial(_written, player, row["prompt"], tools, until) if player else None
    result = episode_play.play(version, tools, row, asked.seed, moves, until, write)
    if result.problem:
        raise Problem(409, result.problem, where="environment")
    return _played(result)


def _written(player: model_turn.ModelPlayer, prompt: Any, tools: Tools, until: float, so_far: Play) -> WrittenMove:
    return model_turn.write(player, prompt, so_far, tools, until - time.monotonic())


def _call(one: OneCall) -> Call:
    return Call(one.tool, episode_play.storable(one.arguments))


def _answer(answer: EnvironmentAnswer) -> dict[str, Any]:
    told = {name: getattr(answer, name) for name in ("text", "error", "seconds", "reward", "done", "failed")}
    return {**told, "error": str(answer.error)}


def _played(result: Play) -> dict[str, Any]:
    return {
        "tools": [tool.as_dict() for tool in result.tools],
        "opening": result.opening,
        "messages": result.messages,
        "end": str(result.end),
        "end_words": result.end_words,
        "reward": result.reward,
        "cut": result.cut,
        "not_written": result.not_written,
    }


def _replay(found: Any) -> dict[str, Any]:
    parts = ("how", "why", "mean", "before", "share", "none", "failed")
    return {
        "groups": len(found.groups),
        "requested": found.requested,
        "completions": found.completions,
        "steps": list(found.steps),
        "pairs": dataclasses.asdict(found.pairs),
        "reordered": found.reordered,
        "components": [
            {"name": part.spec.name} | {name: getattr(part, name) for name in parts} for part in found.parts
        ],
    }
