"""Launching evaluations of a run's starting model and of its checkpoints, each as a separate run."""

from dataclasses import dataclass
from typing import NamedTuple

from django.db import transaction
from django.db.models import QuerySet

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.platform.accounts.models import User
from runs.engine.checkpoints import Checkpoint
from runs.engine.models import Run
from runs.engine.scheduling import checkpoint_hosts, dispatching, launching
from runs.engine.spec import LaunchRequest, spec_of
from workers.contract.run.evaluation import EVALUATION
from workers.contract.run.jobs import MERGE
from workers.contract.wire.documents import ContractError
from workers.contract.wire.names import EndReason

GENERATIONS = 4
MAX_GENERATIONS = 256


@dataclass(frozen=True)
class EvaluationSetup:
    """The settings that two evaluations must share to be comparable."""

    dataset: DatasetVersion
    prompts: int
    generations: int
    rewards: RewardVersion
    temperature: float

    @property
    def key(self) -> "SetupKey":
        return SetupKey(self.dataset.pk, self.prompts, self.generations, self.rewards.pk, self.temperature)


class SetupKey(NamedTuple):
    """A setup that identifies its database rows by their ids."""

    dataset: int
    prompts: int
    generations: int
    rewards: int | None
    """The reward config's id; None if it has been deleted."""
    temperature: float


def start(run: Run, checkpoints: list[Checkpoint], setup: EvaluationSetup, user: User) -> list[Run]:
    """Launch evaluations of checkpoints and the starting model, and return their runs.

    Models with a finished or pending evaluation of the same setup are skipped, since the same seed gives the same
    results. Raises ContractError if the run can't be evaluated, and QueueFull if the user may not queue that many runs.
    """
    evaluated_folders = _evaluated_folders(run, setup)
    to_evaluate = [point for point in (None, *checkpoints) if (point.folder if point else "") not in evaluated_folders]
    with transaction.atomic():
        runs = [launching.submit(_request(run, point, setup), user=user, dispatch=False) for point in to_evaluate]
        transaction.on_commit(dispatching.dispatch_ready, robust=True)
    return runs


def evaluations_of(run: Run) -> QuerySet[Run]:
    return run.jobs.filter(kind=EVALUATION).select_related("source").prefetch_related("attempts")


def setup_of(evaluation: Run) -> SetupKey:
    data, grpo = evaluation.spec["data"], evaluation.spec["grpo"]  # of any version
    return SetupKey(
        evaluation.dataset_version_id,
        int(data["eval_rows"]),
        int(grpo["num_generations_eval"]),
        evaluation.reward_version_id,
        temperature_of(evaluation),
    )


def label_of(checkpoint: Checkpoint) -> str:
    suffix = ", merged" if checkpoint.run.kind == MERGE else ""
    return f"Step {checkpoint.step}{suffix}"


def temperature_of(run: Run) -> float:
    """Return a run's sampling temperature, or TRL's default if the run sets none."""
    return float(run.spec["grpo"].get("temperature", 1.0))


def checkpoint_of(evaluation: Run) -> str:
    """Return the evaluated checkpoint's folder relative to RUNS_DIR, or "" for the evaluated run's starting model."""
    if evaluation.source is None:
        raise ValueError(f"{evaluation.pk} isn't an evaluation")
    folder, start = str(evaluation.spec["start_from"]), str(evaluation.source.spec.get("start_from") or "")
    return "" if folder == start else folder


def _evaluated_folders(run: Run, setup: EvaluationSetup) -> set[str]:
    """Return the checkpoint folders with a pending or finished evaluation of this setup; "" is the starting model."""
    return {
        checkpoint_of(evaluation)
        for evaluation in evaluations_of(run)
        if setup_of(evaluation) == setup.key and evaluation.latest().reason in ("", EndReason.COMPLETED)
    }


def _request(run: Run, checkpoint: Checkpoint | None, setup: EvaluationSetup) -> LaunchRequest:
    spec = spec_of(run)
    if run.profile is None:
        raise ContractError("its hardware profile was deleted")
    label = label_of(checkpoint).lower() if checkpoint else "before training"
    return LaunchRequest(
        name=f"{run.name[:90]} · {label}",
        model=spec.model,
        host=checkpoint_hosts.host_for(checkpoint) if checkpoint else checkpoint_hosts.host_of_start(run),
        dataset_version=setup.dataset,
        reward_version=setup.rewards,
        profile=run.profile,
        grpo={**spec.grpo, "num_generations_eval": setup.generations, "temperature": setup.temperature},
        lora=None if checkpoint and not checkpoint.is_adapter else spec.lora,
        attn_implementation=spec.attn_implementation,
        eval_rows=setup.prompts,
        start_from=checkpoint.folder if checkpoint else spec.start_from,
        kind=EVALUATION,
        source=run,
        environment_version=run.environment_version,
        episodes=spec.episodes,
    )
