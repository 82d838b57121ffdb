"""Where a run's figures are also sent: the programs that teams already look at. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

TENSORBOARD, WANDB, TRACKIO, MLFLOW = "tensorboard", "wandb", "trackio", "mlflow"
TITLES = {TENSORBOARD: "TensorBoard", WANDB: "Weights & Biases", TRACKIO: "trackio", MLFLOW: "MLflow"}
DISTRIBUTIONS = {TENSORBOARD: "tensorboard", WANDB: "wandb", TRACKIO: "trackio", MLFLOW: "mlflow-skinny"}
"""The distribution of each; a host announces its version among `packages`."""
ENVIRONMENT = ".venv-sinks"
GROUP = "sinks"
PYTHON = "GRPO_SINKS_PYTHON"
LINK = "GRPO_SINKS_LINK"
"""The variable with the address of the run's page, from the control plane if it knows its public address."""
SECRET_PREFIX = "GRPO_SINK_SECRET_"  # noqa: S105  # of names
"""Before an endpoint's name: the variable with its {"address", "key"} as JSON, for the sinks' process alone."""
ROLE = "sinks"
STATE = "state.json"
"""In FileName.SINKS: {title of a sink: what is wrong with it, "" if nothing}."""
LONGEST_TEXT = 120


@dataclass(frozen=True)
class SinkSpec:
    kind: str
    project: str = ""
    """Of W&B perhaps entity/project."""
    name: str = ""
    """Of the run there; "": the run's own name."""
    secret: str = ""
    """The endpoint among the secrets with its address and key; "": it writes into the attempt's folder. There is no
    address beside it, so that an admin decides where hosts send to."""


def joined(entity: str, project: str) -> str:
    """W&B's project of a person or a team, in one word."""
    return f"{entity}/{project}"


def parted(project: str) -> tuple[str, str]:
    """(entity, project)."""
    entity, _, own = project.rpartition("/")
    return entity, own


def problem(sink: SinkSpec) -> str:
    """Why nothing can be sent there, or ""."""
    if sink.kind not in TITLES:
        return f"sinks: {sink.kind!r} is none of {', '.join(TITLES)}."
    if sink.kind == MLFLOW and not sink.secret:
        return "sinks: MLflow needs an endpoint with the address of its tracking server."
    if sink.kind == TENSORBOARD and sink.secret:
        return f"sinks: {TITLES[sink.kind]} writes into the attempt's folder and takes no endpoint."
    if any(len(text) > LONGEST_TEXT for text in (sink.project, sink.name)):
        return f"sinks: project and name have at most {LONGEST_TEXT} characters."
    return ""
