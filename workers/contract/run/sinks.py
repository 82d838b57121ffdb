"""Metric sinks: other programs that a run's metrics are sent to. Standard library only."""

from dataclasses import dataclass

TENSORBOARD, WANDB, TRACKIO, MLFLOW = "tensorboard", "wandb", "trackio", "mlflow"
TITLES = {TENSORBOARD: "TensorBoard", WANDB: "Weights & Biases", TRACKIO: "trackio", MLFLOW: "MLflow"}
DISTRIBUTIONS = {TENSORBOARD: "tensorboard", WANDB: "wandb", TRACKIO: "trackio", MLFLOW: "mlflow-skinny"}
"""The distribution of each; a host announces its version among `packages`."""
ENVIRONMENT = ".venv-sinks"
GROUP = "sinks"
PYTHON = "GRPO_SINKS_PYTHON"
LINK = "GRPO_SINKS_LINK"
"""The variable with the address of the run's page, if the control plane knows its own public address."""
SECRET_PREFIX = "GRPO_SINK_SECRET_"  # noqa: S105  # of names
"""Before an endpoint's name: the variable with its {"address", "key"} as JSON, for the sinks' process alone."""
ROLE = "sinks"
STATE = "state.json"
"""A file in FileName.SINKS: {title of a sink: what is wrong with it, "" if nothing}."""
LONGEST_TEXT = 120


@dataclass(frozen=True)
class SinkSpec:
    kind: str
    project: str = ""
    """The project's name, in W&B possibly entity/project."""
    name: str = ""
    """The run's name in the sink; "": its own name."""
    secret: str = ""
    """The endpoint among the secrets with its address and key; "": it writes into the attempt's folder. There is no
    other address, so that an admin decides where hosts send to."""


def joined(entity: str, project: str) -> str:
    """Write W&B's name of a person's or team's project."""
    return f"{entity}/{project}"


def parted(project: str) -> tuple[str, str]:
    """Split a project into (entity, project)."""
    entity, _, own = project.rpartition("/")
    return entity, own


def problem(sink: SinkSpec) -> str:
    """Explain why nothing can be sent there; "" if it can."""
    if sink.kind not in TITLES:
        return f"sinks: {sink.kind!r} is none of {', '.join(TITLES)}."
    if sink.kind == MLFLOW and not sink.secret:
        return "sinks: MLflow needs an endpoint with the address of its tracking server."
    if sink.kind == TENSORBOARD and sink.secret:
        return f"sinks: {TITLES[sink.kind]} writes into the attempt's folder and takes no endpoint."
    if any(len(text) > LONGEST_TEXT for text in (sink.project, sink.name)):
        return f"sinks: project and name have at most {LONGEST_TEXT} characters."
    return ""
