"""Evaluations of a run's checkpoints, and trials of hardware profiles."""

import dataclasses
from functools import partial
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Status

from controlplane.platform.accounts.roles import person
from runs.api import form_values, shapes
from runs.api.access import Router, refusing
from runs.api.drafts import key_of_another, room_in_queue
from runs.api.shapes import Cursor, Id, ItemResponse, Key, Limit, PageResponse, RequestBody, ResponseBody, RunResponse
from runs.engine import queries
from runs.engine.idempotency import key_of_api
from runs.engine.models import ProfileTrial
from runs.engine.scheduling.limits import QueueFull
from runs.insight.evaluations import results, starting
from runs.insight.evaluations.results import EvaluationResult
from runs.insight.evaluations.views import EvaluationForm
from runs.launch.trials import results as trial_results
from runs.launch.trials import trials
from runs.launch.trials.forms import MAX_PROFILES, TrialForm
from workers.contract.wire.documents import ContractError

router = Router(tags=["evaluations and trials"])


class Evaluate(RequestBody):
    checkpoints: list[Id] | None = Field(
        None,
        max_length=200,
        description="Ids of checkpoints. None: the newest. The starting model is always evaluated, too.",
    )
    dataset: Id | None = Field(None, description="The id of a dataset version. None: the run's own.")
    prompts: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        None, description="How many of the validation rows. None: at most 64."
    )
    generations: Annotated[int, Field(ge=1, le=starting.MAX_GENERATIONS)] = starting.GENERATIONS
    rewards: Id | None = Field(None, description="The id of a version of a reward config. None: the run's own.")
    temperature: Annotated[float, Field(ge=0.01, le=2)] | None = Field(None, description="None: the run's own.")


class Evaluated(ResponseBody):
    started: list[RunResponse]
    """The runs that were launched. Empty: all of it was evaluated before, and the same seed gives the same numbers."""


class NewTrial(RequestBody):
    host: Id
    model: str = Field(max_length=500, description="A folder on the host, or a hub id.")
    dataset_version: Id
    reward_version: Id
    environment: Id | None = Field(None, description="The id of a version of an environment.")
    profiles: list[Id] = Field(min_length=1, max_length=MAX_PROFILES)


class StoppedTrial(ResponseBody):
    stopped: int
    """Number of candidates that were asked to stop."""


@router.get("runs/{slug:run_id}/evaluations", response=PageResponse)
def evaluations(request: HttpRequest, run_id: str) -> Any:
    """List evaluations of a run.

    Grouped by setup, the starting model first. `gain` compares a checkpoint with it, prompt by prompt."""
    evaluated = results.of_run(queries.run_for(request, run_id))
    return {"items": [_evaluation(result) for result in evaluated], "next_cursor": ""}


@router.post("runs/{slug:run_id}/evaluations", response={200: Evaluated, 201: Evaluated})
def evaluate(request: HttpRequest, run_id: str, payload: Evaluate) -> Any:
    """Evaluate checkpoints of a run.

    A run of its own evaluates each checkpoint, and the starting model, on rows that are never trained on."""
    run = queries.run_for(request, run_id)
    form = form_values.filled(partial(EvaluationForm, request, run), payload.dict(exclude_none=True))
    with refusing(ContractError, QueueFull, where="run", text="This can't be evaluated: {}."):
        started = starting.start(run, form.chosen(), form.setup(), person(request))
    runs = [shapes.run(queries.run_for(request, run.pk)) for run in started]
    return Status(201 if runs else 200, {"started": runs})


@router.get("trials", response=PageResponse)
def list_trials(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List trials of hardware profiles."""
    return shapes.page(queries.trials_for(request), _trial, cursor, limit)


@router.post("trials", response={200: ItemResponse, 201: ItemResponse})
def new_trial(request: HttpRequest, payload: NewTrial, idempotency_key: Key = "") -> Any:
    """Try hardware profiles.

    Runs a few steps on one host with each profile, to see which fit and which is fastest. A repeated request with the
    same Idempotency-Key is answered with 200 and the first trial."""
    form = form_values.filled(TrialForm, payload.dict(exclude_none=True))
    user, profiles = person(request), form.cleaned_data["profiles"]
    with room_in_queue():
        trial, fresh = trials.start(form.setup(), profiles, user, key_of_api(user, idempotency_key))
    if not fresh and not trials.is_of(trial, form.setup(), profiles):
        raise key_of_another("trial")
    return Status(201 if fresh else 200, {"item": _trial(trial)})


@router.get("trials/{int:trial_id}", response=ItemResponse)
def trial(request: HttpRequest, trial_id: Id) -> Any:
    """Read a trial. With each profile's result: whether it fits, its memory and its speed."""
    return {"item": _trial(queries.trial_for(request, trial_id))}


@router.post("trials/{int:trial_id}/stop", response=StoppedTrial)
def stop_trial(request: HttpRequest, trial_id: Id) -> Any:
    """Stop a trial."""
    return {"stopped": trials.stop_all(queries.trial_for(request, trial_id), person(request))}


def _evaluation(result: EvaluationResult) -> dict[str, Any]:
    gain = result.gain
    return {
        "run": result.run.pk,
        "status": result.run.latest().status,
        **shapes.columns(result, "step", "merged"),
        "setup": result.setup._asdict(),
        "reward": result.reward,
        "rewards": dict(result.components),
        **shapes.columns(result, "pass_1", "pass_k", "tokens"),
        "gain": {**dataclasses.asdict(gain), "verdict": gain.verdict, "over": result.base} if gain else None,
    }


def _trial(row: ProfileTrial) -> dict[str, Any]:
    progress = trial_results.progress(row)
    return {
        "id": row.pk,
        "model": row.model,
        "host": row.host.name if row.host else "",
        "created_at": row.created_at,
        "live": progress.live,
        "results": [
            {
                "profile": result.name,
                "profile_id": result.profile_id,
                "run": result.run.pk if result.run else "",
                **shapes.columns(result, "status", "fits", "why", "best"),
                "measured": dataclasses.asdict(result.measured),
                "gpus": [dataclasses.asdict(peak) for peak in result.peaks],
            }
            for result in progress.results
        ],
    }
