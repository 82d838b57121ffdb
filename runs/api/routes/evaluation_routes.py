"""Evaluations of a run's checkpoints, and trials of hardware profiles."""

import dataclasses
from functools import partial
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Status

from controlplane.platform.accounts.roles import person
from runs.api import form_values, shapes
from runs.api.access import Router, refusing
from runs.api.drafts import key_conflict, refusing_full_queue
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
        description="Ids of checkpoints. If null, the newest. The starting model is always evaluated as well.",
    )
    dataset: Id | None = Field(None, description="The id of a dataset version. If null, the version that the run uses.")
    prompts: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        None, description="Number of validation rows to use. If null, up to 64."
    )
    generations: Annotated[int, Field(ge=1, le=starting.MAX_GENERATIONS)] = starting.GENERATIONS
    rewards: Id | None = Field(
        None, description="The id of a version of a reward config. If null, the version that the run uses."
    )
    temperature: Annotated[float, Field(ge=0.01, le=2)] | None = Field(
        None, description="Sampling temperature. If null, the run's temperature."
    )


class EvaluationResponse(ResponseBody):
    started: list[RunResponse]
    """The runs that were launched. Empty if everything was already evaluated: the same seed gives the same results."""


class NewTrial(RequestBody):
    host: Id
    model: str = Field(max_length=500, description="A folder on the host, or a hub id.")
    dataset_version: Id
    reward_version: Id
    environment: Id | None = Field(None, description="The id of a version of an environment.")
    profiles: list[Id] = Field(min_length=1, max_length=MAX_PROFILES)


class TrialStopResponse(ResponseBody):
    stopped: int
    """Number of runs of the trial that were asked to stop."""


@router.get("runs/{slug:run_id}/evaluations", response=PageResponse)
def evaluations(request: HttpRequest, run_id: str) -> Any:
    """List a run's evaluations, grouped by setup, starting model first.

    `gain` compares a checkpoint with the starting model, prompt by prompt."""
    evaluation_results = results.of_run(queries.run_for(request, run_id))
    return {"items": [_evaluation(result) for result in evaluation_results], "next_cursor": ""}


@router.post("runs/{slug:run_id}/evaluations", response={200: EvaluationResponse, 201: EvaluationResponse})
def evaluate(request: HttpRequest, run_id: str, payload: Evaluate) -> Any:
    """Evaluate checkpoints of a run and its starting model.

    Each model is evaluated by a separate run, on rows that are never used for training."""
    run = queries.run_for(request, run_id)
    form = form_values.fill(partial(EvaluationForm, request, run), payload.dict(exclude_none=True))
    with refusing(ContractError, QueueFull, where="run", message="This can't be evaluated: {}."):
        new_runs = starting.start(run, form.chosen(), form.setup(), person(request))
    runs = [shapes.run(queries.run_for(request, run.pk)) for run in new_runs]
    return Status(201 if runs else 200, {"started": runs})


@router.get("trials", response=PageResponse)
def list_trials(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List trials of hardware profiles."""
    return shapes.page(queries.trials_for(request), _trial, cursor, limit)


@router.post("trials", response={200: ItemResponse, 201: ItemResponse})
def new_trial(request: HttpRequest, payload: NewTrial, idempotency_key: Key = "") -> Any:
    """Try out hardware profiles.

    Runs a few steps on one host with each profile, to see which ones fit and which is fastest. Repeating the request
    with the same Idempotency-Key returns 200 and the first trial."""
    form = form_values.fill(TrialForm, payload.dict(exclude_none=True))
    user, profiles = person(request), form.cleaned_data["profiles"]
    with refusing_full_queue():
        trial, is_new = trials.start(form.setup(), profiles, user, key_of_api(user, idempotency_key))
    if not is_new and not trials.is_of(trial, form.setup(), profiles):
        raise key_conflict("trial")
    return Status(201 if is_new else 200, {"item": _trial(trial)})


@router.get("trials/{int:trial_id}", response=ItemResponse)
def trial(request: HttpRequest, trial_id: Id) -> Any:
    """Read a trial and each profile's result: whether it fits, its memory use and its speed."""
    return {"item": _trial(queries.trial_for(request, trial_id))}


@router.post("trials/{int:trial_id}/stop", response=TrialStopResponse)
def stop_trial(request: HttpRequest, trial_id: Id) -> Any:
    """Stop a trial of hardware profiles."""
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
