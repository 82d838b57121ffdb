"""Reporting of a document's training to W&B, TensorBoard and others, as sinks of a run. Configs name them by keys,
commands and scripts by environment variables as well."""

from typing import Any

from controlplane.catalogue.exchange.keys import Leave, Rule, Take, flag, names, text
from controlplane.catalogue.exchange.reading import KeyVerdict, Reading, WrongValue
from workers.contract.run import sinks
from workers.contract.run.sinks import MLFLOW, TENSORBOARD, TITLES, TRACKIO, WANDB

SECRETS_ALONE = (
    "No key is taken from a document: an admin stores it with its server's address as an endpoint among the secrets."
)
ADDRESS = "Addresses are endpoints among the secrets: choose one under Also send to."
FIGURES = "Only a run's figures, its settings and the link to its page are sent."

ANY = "any"
"""Names of values that every kind of sink has."""


def reports(raw: Any) -> tuple[str, ...]:
    """Read the names of kinds of sinks. Refuses the further ones that transformers has."""
    kinds = tuple(kind for kind in (() if raw == [] else names(raw)) if kind not in ("none", "all"))
    if wrong := [kind for kind in kinds if kind not in TITLES]:
        raise WrongValue(f"Figures are sent to {', '.join(TITLES)}, not to {wrong[0]}")
    return kinds


def plain(raw: Any) -> str:
    """Read a name, but no variable of a shell or a template."""
    value = text(raw)
    if value.startswith("$"):
        raise WrongValue("Expected the name itself")
    return value


def mode(raw: Any) -> bool:
    return text(raw).lower() not in ("disabled", "dryrun")


def unless(raw: Any) -> bool:
    return not flag(raw)


KEYS: dict[str, Rule] = {
    "use_wandb": Take("_wandb.on", flag),
    "wandb_project": Take("_wandb.project", plain),
    "wandb_entity": Take("_wandb.entity", plain),
    "wandb_name": Take("_wandb.name", plain),
    "wandb_mode": Take("_wandb.on", mode),
    "use_mlflow": Take("_mlflow.on", flag),
    "mlflow_experiment_name": Take("_mlflow.project", plain),
    "mlflow_run_name": Take("_mlflow.name", plain),
    "mlflow_tracking_uri": Take("_mlflow.address", plain),
    "use_trackio": Take("_trackio.on", flag),
    "trackio_project_name": Take("_trackio.project", plain),
    "trackio_run_name": Take("_trackio.name", plain),
    "trackio_space_id": Leave(ADDRESS),
    "use_tensorboard": Take("_tensorboard.on", flag),
    **dict.fromkeys(("wandb_watch", "wandb_log_model", "wandb_run_id", "hf_mlflow_log_artifacts"), Leave(FIGURES)),
}
"""Keys of Axolotl, and of scripts around TRL."""
_AS_VARIABLES = (
    "wandb_project", "wandb_entity", "wandb_name", "wandb_mode", "wandb_watch", "wandb_log_model", "wandb_run_id",
    "mlflow_experiment_name", "mlflow_tracking_uri", "trackio_project_name", "trackio_space_id",
    "hf_mlflow_log_artifacts",
)  # fmt: skip
VARIABLES: dict[str, Rule] = {
    **{name.upper(): KEYS[name] for name in _AS_VARIABLES},
    "TRACKIO_PROJECT": KEYS["trackio_project_name"],
    "WANDB_DISABLED": Take("_wandb.on", unless),
    "WANDB_BASE_URL": Leave(ADDRESS),
    **dict.fromkeys(
        ("WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"),
        Leave(SECRETS_ALONE),
    ),
    **dict.fromkeys(("WANDB_RUN_GROUP", "WANDB_TAGS", "WANDB_NOTES", "WANDB_DIR", "MLFLOW_TAGS"), Leave(FIGURES)),
}
"""Environment variables that W&B, MLflow, trackio and transformers read."""
TABLE: dict[str, Rule] = {
    "report_to": Take("_report_to", reports),
    "project": Take(f"_{ANY}.project", text),
    "run_name": Take(f"_{ANY}.name", text),
    **KEYS,
    **VARIABLES,
}


def finish(reading: Reading) -> None:
    """Fill in a sink for each tool that a config reports to. A config that names a tool's project or run reports to it,
    unless it lists its tools elsewhere."""
    is_stated, source = "_report_to" in reading.values, reading.sources.get("_report_to", "report_to")
    kinds = reading.pop("_report_to") or ()
    for kind in (WANDB, MLFLOW, TRACKIO, TENSORBOARD):
        named = _named(reading, kind)
        reports = kind in kinds or (bool(named) and not is_stated)
        if reports and named.get("on", (True, ""))[0]:
            reading.put(f"sinks.{kind}", True, source if kind in kinds else next(iter(named.values()))[1])
            _join_entity(reading, named)
            _take(reading, named)
    _take(reading, _named(reading, ANY))
    if not any(f"sinks.{kind}" in reading.values for kind in TITLES):
        reading.pop("sinks.project")
        reading.pop("sinks.name")
    if reading.values.get("sinks.mlflow"):
        text = "MLflow needs an endpoint with its server's address: choose it under Also send to."
        reading.note(KeyVerdict.LEFT_OUT, reading.sources["sinks.mlflow"], text, path="sinks.mlflow_secret")


def _named(reading: Reading, kind: str) -> dict[str, tuple[Any, str]]:
    """Take out the values for one kind of sink, each with its key in the document."""
    start = f"_{kind}."
    sources = {path: reading.sources[path] for path in reading.values if path.startswith(start)}
    return {path.removeprefix(start): (reading.pop(path), source) for path, source in sources.items()}


def _join_entity(reading: Reading, named: dict[str, tuple[Any, str]]) -> None:
    """Join a W&B project with the person or team that owns it."""
    entity, source = named.pop("entity", ("", ""))
    if entity and "project" in named:
        project, at = named["project"]
        named["project"] = sinks.joined(entity, project), at
    elif entity:
        reading.note(KeyVerdict.LEFT_OUT, source, f"Name a project, too: {entity}/project under Also send to.")


def _take(reading: Reading, named: dict[str, tuple[Any, str]]) -> None:
    for part in ("project", "name"):
        value, source = named.get(part, (None, ""))
        before = reading.values.get(f"sinks.{part}")
        if before is None and value is not None:
            reading.put(f"sinks.{part}", value, source)
        elif value not in (None, before):
            text = f"All sinks of a run have one {part}, which is {before} by {reading.sources[f'sinks.{part}']}."
            reading.note(KeyVerdict.CONTRADICTION, source, text, path=f"sinks.{part}")
