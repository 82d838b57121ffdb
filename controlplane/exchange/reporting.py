"""Where a document's training reports to: W&B, TensorBoard and others, as sinks of a run."""

from __future__ import annotations

from typing import Any

from controlplane.exchange.keys import Rule, Take, names, text
from controlplane.exchange.reading import Reading, Verdict, WrongValue
from workers.contract import sinks


def reports(raw: Any) -> tuple[str, ...]:
    """The kinds of sinks; transformers has more of them than we do."""
    words = tuple(word for word in (() if raw == [] else names(raw)) if word not in ("none", "all"))
    if wrong := [word for word in words if word not in sinks.TITLES]:
        raise WrongValue(f"Figures are sent to {', '.join(sinks.TITLES)}, not to {wrong[0]}")
    return words


TABLE: dict[str, Rule] = {
    "report_to": Take("_report_to", reports),
    "wandb_project": Take("sinks.project", text),
    "project": Take("sinks.project", text),
    "run_name": Take("sinks.name", text),
}


def finish(reading: Reading) -> None:
    """A sink for each that a config reports to."""
    source = reading.sources.get("_report_to", "report_to")
    for kind in reading.pop("_report_to") or ():
        reading.put(f"sinks.{kind}", True, source)
    if not any(f"sinks.{kind}" in reading.values for kind in sinks.TITLES):
        reading.pop("sinks.project")
        reading.pop("sinks.name")
    if reading.values.get("sinks.mlflow"):
        text = "MLflow needs an endpoint with its server's address: choose it under Also send to."
        reading.note(Verdict.LEFT_OUT, source, text, path="sinks.mlflow_secret")
