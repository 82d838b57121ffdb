"""The fields of where a run's figures are also sent."""

from __future__ import annotations

from typing import Any

from django import forms

from controlplane.catalogue.versioned.parameter_forms import StoredChoiceField, endpoints
from controlplane.platform.accounts import vault
from workers.contract.run import sinks
from workers.contract.run.sinks import LONGEST_TEXT, SinkSpec

KINDS = {kind: f"send_{kind}" for kind in sinks.TITLES}
"""Kind -> its checkbox."""
SECRETS = {kind: f"send_{kind}_secret" for kind in (sinks.WANDB, sinks.MLFLOW, sinks.TRACKIO)}
"""Kind -> the field with its endpoint."""
SINK_FIELDS = (
    "send_wandb", "send_wandb_secret", "send_project",
    "send_mlflow", "send_mlflow_secret", "send_name",
    "send_trackio", "send_trackio_secret", "send_tensorboard",
)  # fmt: skip
"""In the rows of three in which a wide page has them."""


def _endpoint(label: str, help_text: str) -> StoredChoiceField:
    return StoredChoiceField(stored=endpoints, label=label, required=False, help_text=help_text)


class SinkFields(forms.Form):
    send_tensorboard = forms.BooleanField(
        label="TensorBoard",
        required=False,
        help_text="An event file in the run's folder on its host, under sinks/1-tensorboard.",
    )
    send_wandb = forms.BooleanField(
        label="Weights & Biases",
        required=False,
        help_text="Without an endpoint, an offline run in the run's folder, for wandb sync.",
    )
    send_trackio = forms.BooleanField(
        label="trackio", required=False, help_text="Without an endpoint, a database in the run's folder on its host."
    )
    send_mlflow = forms.BooleanField(label="MLflow", required=False, help_text="A tracking server over HTTP.")
    send_project = forms.CharField(
        label="Project",
        required=False,
        max_length=LONGEST_TEXT,
        help_text="There; in MLflow the experiment, in W&B perhaps entity/project. Empty: grpo.",
    )
    send_name = forms.CharField(
        label="Name there", required=False, max_length=LONGEST_TEXT, help_text="Empty: the name of the run."
    )
    send_wandb_secret = _endpoint(
        "Endpoint for W&B", "Among the secrets, such as one with https://api.wandb.ai and an API key."
    )
    send_mlflow_secret = _endpoint(
        "Endpoint for MLflow", "Among the secrets, with the server's address. Its key is a token, or name:password."
    )

    send_trackio_secret = _endpoint(
        "Endpoint for trackio", "Among the secrets: a trackio server with its write token, or a Space with a hub token."
    )

    def check_sinks(self, values: dict[str, Any]) -> None:
        """Add an error for each endpoint that is missing or can't be used."""
        for kind, name in SECRETS.items():
            secret = values.get(name) or ""
            if not values.get(KINDS[kind]):
                continue
            if text := (vault.problem(secret) if secret else sinks.problem(SinkSpec(kind)).removeprefix("sinks: ")):
                self.add_error(name, text)

    @property
    def sinks(self) -> tuple[SinkSpec, ...]:
        """Of the valid values."""
        values: dict[str, Any] = getattr(self, "cleaned_data", {})
        project, name = values.get("send_project") or "", values.get("send_name") or ""
        chosen = [kind for kind, field in KINDS.items() if values.get(field)]
        return tuple(SinkSpec(kind, project, name, values.get(SECRETS.get(kind, "")) or "") for kind in chosen)


def of_spec(chosen: tuple[SinkSpec, ...]) -> dict[str, Any]:
    """The fields' values. The form has one project and one name for all."""
    values: dict[str, Any] = {KINDS[sink.kind]: True for sink in chosen if sink.kind in KINDS}
    values |= {SECRETS[sink.kind]: sink.secret for sink in chosen if sink.kind in SECRETS}
    values["send_project"] = next((sink.project for sink in chosen), "")
    values["send_name"] = next((sink.name for sink in chosen), "")
    return values
