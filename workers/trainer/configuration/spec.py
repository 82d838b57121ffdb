"""The attempt's spec.json: read and checked before anything slow is imported."""

import json
import os
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from workers.contract.run import evaluation, learnability, mixing, overlapping, prompts, row_names
from workers.contract.run.batch_rules import Batch
from workers.contract.run.evaluation import EVALUATION
from workers.contract.run.jobs import WARM
from workers.contract.run.learnability import CHECK
from workers.contract.run.spec import AttemptSpec, ModelSpec, RunSpec, models_of
from workers.contract.stack import commands
from workers.contract.wire.documents import ContractError, from_dict
from workers.contract.wire.names import SCHEMA, FileName
from workers.rewards.library import LIBRARY
from workers.trainer.configuration import combinations

EXIT_SPEC = 3
"""Exit code if the spec can't be trained; the last line on stderr says why."""


class TrainerError(Exception):
    """Base class of errors whose message is for the user who launched the run."""

    exit_code = 1


class SpecError(TrainerError):
    exit_code = EXIT_SPEC


class NoStepsError(TrainerError):
    """Raised when training would take, or has taken, no step."""

    exit_code = 4


class StoppedWaitingError(NoStepsError):
    """Raised when the run was stopped while the trainer waited for the programs that drive its episodes."""

    def __init__(self) -> None:
        super().__init__("The run was stopped while it waited for the programs that drive its episodes.")


class RewardFailedError(TrainerError):
    """Raised when a reward failed on more rows than the run allows."""

    exit_code = 7


def read(folder: Path) -> AttemptSpec:
    """Read the spec in an attempt's folder, and check it as far as possible without torch. Raises SpecError if it can't
    be read or this trainer can't run it."""
    try:
        document = json.loads((folder / FileName.SPEC).read_bytes())
        spec = from_dict(AttemptSpec, document)
    except OSError as error:
        raise SpecError(f"The spec can't be read: {error.strerror or error} ({folder / FileName.SPEC}).") from error
    except ContractError as error:
        raise SpecError(f"The spec doesn't follow the contract: {error}.") from error
    except ValueError as error:
        raise SpecError(f"The spec is not valid JSON: {error}.") from error
    if spec.run.schema != SCHEMA:
        raise SpecError(f"The spec has version {spec.run.schema} of the contract, but this trainer reads {SCHEMA}.")
    if spec.run.kind == WARM:
        return spec  # it scores and trains nothing
    for model in models_of(spec.run):
        _check_model(model.path)
    _check_rewards(spec)
    for mix_problem in mixing.problems(spec.run.data.every_source):
        raise SpecError(mix_problem)
    if spec.run.rewards_beside and (problem := overlapping.rewards_problem(spec.run.hardware, spec.run.episodes)):
        raise SpecError(f"Groups can't be scored while others are generated. {problem.sentence}")
    components = [reward.name for reward in spec.run.rewards]
    has_turn_rewards = any(reward.per_turn for reward in spec.run.rewards)
    for settings_problem in prompts.problems(
        spec.run.prompts, components, spec.run.episodes, per_turn=has_turn_rewards
    ):
        raise SpecError(str(settings_problem))
    if spec.run.ahead:
        run = spec.run
        for settings_problem in overlapping.ahead_problems(run.hardware, run.grpo, run.prompts, run.episodes):
            raise SpecError(str(settings_problem))
    if combination_problem := combinations.problem(spec):
        raise SpecError(combination_problem)
    if spec.resume_from is not None:
        _check_checkpoint(Path(spec.resume_from))
    return replace(spec, run=replace(spec.run, grpo=_grpo_settings(spec.run)))


def _grpo_settings(run: RunSpec) -> dict[str, Any]:
    if run.kind == CHECK:
        batch = Batch.of(run.grpo, run.hardware.processes)
        return learnability.settings(run.grpo, batch, run.check_groups or learnability.GROUPS)
    return evaluation.settings(run) if run.kind == EVALUATION else run.grpo


def versions() -> dict[str, str]:
    """Return the versions of the packages that write a checkpoint."""
    return {name: version(name) for name in ("trl", "transformers", "torch")}


def _check_checkpoint(folder: Path) -> None:
    if not (folder / "trainer_state.json").is_file():
        raise SpecError(f"There is no checkpoint to resume from in {folder}.")
    try:
        saved_by = json.loads((folder / FileName.VERSIONS).read_bytes())["trl"]
    except FileNotFoundError:
        return  # the checkpoint was written without versions
    except (ValueError, KeyError, TypeError) as error:
        raise SpecError(f"{folder.name}/{FileName.VERSIONS} can't be read: {error!r}.") from error
    if str(saved_by).split(".")[:2] != version("trl").split(".")[:2]:
        raise SpecError(
            f"{folder.name} was saved by TRL {saved_by}, but this host has {version('trl')}, so the run would not "
            "continue as it began. Clone the run, or install the version that it began with."
        )


def is_local(model: str) -> bool:
    """Return whether the model is a folder on this host, by an absolute path or below the working directory."""
    return commands.is_local(model) or Path(model).is_dir()


def path_of(model: ModelSpec) -> str:
    """Return the model's path or hub id in the form that transformers accepts."""
    return str(Path(model.path).expanduser()) if model.path.startswith("~") else model.path


def _check_model(model: str) -> None:
    if not is_local(model):
        return
    folder = Path(model).expanduser()
    if not folder.is_dir():
        raise SpecError(f"The model folder {model} doesn't exist on this host ({os.uname().nodename}).")
    if not (folder / "config.json").is_file():
        raise SpecError(f"{model} is not a model folder: it has no config.json.")


def _check_rewards(spec: AttemptSpec) -> None:
    rewards = spec.run.rewards
    if not rewards:
        raise SpecError("The run has no reward, so GRPO has nothing to learn from.")
    if not 0 <= spec.run.failed_share <= 1:
        raise SpecError(f"failed_share must be a share from 0 to 1, not {spec.run.failed_share:g}.")
    if not any(reward.weight for reward in rewards):
        raise SpecError("Every reward has weight 0, so every advantage would be 0.")
    names = [reward.name for reward in spec.run.every_reward]
    for reward in spec.run.every_reward:
        if names.count(reward.name) > 1:
            raise SpecError(f"Two rewards are named {reward.name!r}: TRL would merge their charts into one.")
        if reward.function not in LIBRARY:
            raise SpecError(f"Reward {reward.name!r} uses {reward.function!r}, which the library doesn't have.")
        if problems := LIBRARY[reward.function].check(reward.params):
            raise SpecError(f"Reward {reward.name!r}: {'; '.join(problems)}.")
        if reward.per_turn and not LIBRARY[reward.function].per_turn:
            raise SpecError(f"Reward {reward.name!r} scores whole completions only, not each turn.")
        for problem in row_names.problems(reward.applies_to):
            raise SpecError(f"Reward {reward.name!r}: {problem}")
