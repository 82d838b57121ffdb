"""Metric sinks: other programs to which a run's metrics are sent. Standard library only."""

from dataclasses import dataclass

TENSORBOARD, WANDB, TRACKIO, MLFLOW = "tensorboard", "wandb", "trackio", "mlflow"
TITLES = {TENSORBOARD: "TensorBoard", WANDB: "Weights & Biases", TRACKIO: "trackio", MLFLOW: "MLflow"}
DISTRIBUTIONS = {TENSORBOARD: "tensorboard", WANDB: "wandb", TRACKIO: "trackio", MLFLOW: "mlflow-skinny"}
"""The distribution of each sink's package; a host announces its version among `packages`."""
ENVIRONMENT = ".venv-sinks"
GROUP = "sinks"
PYTHON = "GRPO_SINKS_PYTHON"
LINK = "GRPO_SINKS_LINK"
"""Environment variable with the address of the run's page, if the control plane knows its own public address."""
SECRET_PREFIX = "GRPO_SINK_SECRET_"  # noqa: S105  # of names
"""Prefix of environment variables, followed by an endpoint's name; the value is its {"address", "key"} as JSON. Only
the sinks' process gets them."""
ROLE = "sinks"
STATE = "state.json"
"""Name of a file in FileName.SINKS: {title of a sink: its problem, or "" if it has none}."""
MAX_TEXT_LENGTH = 120


@dataclass(frozen=True)
class SinkSpec:
    kind: str
    project: str = ""
    """Name of the project; in W&B optionally entity/project."""
    name: str = ""
    secret: str = ""
    """The endpoint among the secrets, with its address and key; "" to write into the attempt's folder. An address can't
    be given otherwise, so that an admin decides where hosts send metrics."""


def join_project(entity: str, project: str) -> str:
    return f"{entity}/{project}"


def split_project(project: str) -> tuple[str, str]:
    entity, _, name = project.rpartition("/")
    return entity, name


def problem(sink: SinkSpec) -> str:
    """Explain why metrics can't be sent to a sink; return "" if they can."""
    if sink.kind not in TITLES:
        return f"sinks: {sink.kind!r} is not one of {', '.join(TITLES)}."
    if sink.kind == MLFLOW and not sink.secret:
        return "sinks: MLflow needs an endpoint with the address of its tracking server."
    if sink.kind == TENSORBOARD and sink.secret:
        return f"sinks: {TITLES[sink.kind]} writes into the attempt's folder and takes no endpoint."
    if any(len(name) > MAX_TEXT_LENGTH for name in (sink.project, sink.name)):
        return f"sinks: project and name can have at most {MAX_TEXT_LENGTH} characters."
    return ""
