"""Conversion of a document's reporting to W&B, TensorBoard and others to a run's sinks. Documents set it by keys,
commands and scripts also by environment variables."""

from typing import Any

from controlplane.catalogue.exchange.keys import Leave, Rule, Take, flag, names, text
from controlplane.catalogue.exchange.reading import KeyVerdict, Reading, WrongValue
from workers.contract.run import sinks
from workers.contract.run.sinks import MLFLOW, TENSORBOARD, TITLES, TRACKIO, WANDB

KEYS_IN_SECRETS = (
    "API keys aren't imported: an admin stores each with its server's address as an endpoint in the secrets."
)
ADDRESS = "Addresses are stored as endpoints in the secrets; choose one under Also send to."
METRICS_ONLY = "Only a run's metrics, its settings and a link to its page are sent."

ANY = "any"
"""Placeholder for the kind of sink in the paths of values that apply to every kind."""


def reports(raw: Any) -> tuple[str, ...]:
    """Read sink kinds. Raises WrongValue for kinds that a run can't send to."""
    kinds = tuple(kind for kind in (() if raw == [] else names(raw)) if kind not in ("none", "all"))
    if unknown_kinds := [kind for kind in kinds if kind not in TITLES]:
        raise WrongValue(f"Metrics can be sent to {', '.join(TITLES)}, not to {unknown_kinds[0]}")
    return kinds


def plain(raw: Any) -> str:
    """Read a name. Raises WrongValue for a variable of a shell or a template."""
    value = text(raw)
    if value.startswith("$"):
        raise WrongValue("Expected the name itself")
    return value


def is_enabled(raw: Any) -> bool:
    return text(raw).lower() not in ("disabled", "dryrun")


def inverted(raw: Any) -> bool:
    return not flag(raw)


KEYS: dict[str, Rule] = {
    "use_wandb": Take("_wandb.on", flag),
    "wandb_project": Take("_wandb.project", plain),
    "wandb_entity": Take("_wandb.entity", plain),
    "wandb_name": Take("_wandb.name", plain),
    "wandb_mode": Take("_wandb.on", is_enabled),
    "use_mlflow": Take("_mlflow.on", flag),
    "mlflow_experiment_name": Take("_mlflow.project", plain),
    "mlflow_run_name": Take("_mlflow.name", plain),
    "mlflow_tracking_uri": Take("_mlflow.address", plain),
    "use_trackio": Take("_trackio.on", flag),
    "trackio_project_name": Take("_trackio.project", plain),
    "trackio_run_name": Take("_trackio.name", plain),
    "trackio_space_id": Leave(ADDRESS),
    "use_tensorboard": Take("_tensorboard.on", flag),
    **dict.fromkeys(("wandb_watch", "wandb_log_model", "wandb_run_id", "hf_mlflow_log_artifacts"), Leave(METRICS_ONLY)),
}
"""Rules for keys of Axolotl, and of scripts that use TRL."""
_AS_VARIABLES = (
    "wandb_project", "wandb_entity", "wandb_name", "wandb_mode", "wandb_watch", "wandb_log_model", "wandb_run_id",
    "mlflow_experiment_name", "mlflow_tracking_uri", "trackio_project_name", "trackio_space_id",
    "hf_mlflow_log_artifacts",
)  # fmt: skip
VARIABLES: dict[str, Rule] = {
    **{name.upper(): KEYS[name] for name in _AS_VARIABLES},
    "TRACKIO_PROJECT": KEYS["trackio_project_name"],
    "WANDB_DISABLED": Take("_wandb.on", inverted),
    "WANDB_BASE_URL": Leave(ADDRESS),
    **dict.fromkeys(
        ("WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"),
        Leave(KEYS_IN_SECRETS),
    ),
    **dict.fromkeys(("WANDB_RUN_GROUP", "WANDB_TAGS", "WANDB_NOTES", "WANDB_DIR", "MLFLOW_TAGS"), Leave(METRICS_ONLY)),
}
"""Rules for environment variables of W&B, MLflow, trackio and transformers."""
TABLE: dict[str, Rule] = {
    "report_to": Take("_report_to", reports),
    "project": Take(f"_{ANY}.project", text),
    "run_name": Take(f"_{ANY}.name", text),
    **KEYS,
    **VARIABLES,
}


def finish(reading: Reading) -> None:
    """Add a sink for each tool that a config reports to: the tools that it lists or, without such a list, those whose
    project or run it names."""
    is_stated, source = "_report_to" in reading.values, reading.sources.get("_report_to", "report_to")
    kinds = reading.pop("_report_to") or ()
    for kind in (WANDB, MLFLOW, TRACKIO, TENSORBOARD):
        values = _pop_values(reading, kind)
        reports = kind in kinds or (bool(values) and not is_stated)
        if reports and values.get("on", (True, ""))[0]:
            reading.put(f"sinks.{kind}", True, source if kind in kinds else next(iter(values.values()))[1])
            _join_entity(reading, values)
            _take(reading, values)
    _take(reading, _pop_values(reading, ANY))
    if not any(f"sinks.{kind}" in reading.values for kind in TITLES):
        reading.pop("sinks.project")
        reading.pop("sinks.name")
    if reading.values.get("sinks.mlflow"):
        message = "MLflow needs an endpoint with its server's address; choose one under Also send to."
        reading.note(KeyVerdict.LEFT_OUT, reading.sources["sinks.mlflow"], message, path="sinks.mlflow_secret")


def _pop_values(reading: Reading, kind: str) -> dict[str, tuple[Any, str]]:
    """Remove and return the values for one kind of sink, each with its key in the document."""
    prefix = f"_{kind}."
    sources = {path: reading.sources[path] for path in reading.values if path.startswith(prefix)}
    return {path.removeprefix(prefix): (reading.pop(path), source) for path, source in sources.items()}


def _join_entity(reading: Reading, values: dict[str, tuple[Any, str]]) -> None:
    entity, source = values.pop("entity", ("", ""))
    if entity and "project" in values:
        project, project_key = values["project"]
        values["project"] = sinks.join_project(entity, project), project_key
    elif entity:
        reading.note(KeyVerdict.LEFT_OUT, source, f"Name a project, too: {entity}/project under Also send to.")


def _take(reading: Reading, values: dict[str, tuple[Any, str]]) -> None:
    for field in ("project", "name"):
        value, source = values.get(field, (None, ""))
        before = reading.values.get(f"sinks.{field}")
        if before is None and value is not None:
            reading.put(f"sinks.{field}", value, source)
        elif value not in (None, before):
            message = f"All sinks of a run share one {field}; {reading.sources[f'sinks.{field}']} sets it to {before}."
            reading.note(KeyVerdict.CONTRADICTION, source, message, path=f"sinks.{field}")
