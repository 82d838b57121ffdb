"""Where other tools' configs report to, as sinks of a run."""

from __future__ import annotations

import pytest

from controlplane.catalogue.exchange import documents, trl
from controlplane.catalogue.exchange.reading import KeyVerdict

AXOLOTL = "base_model: org/small\nrl: grpo\nwandb_project: sums\nwandb_name: first\n"
TRL = "model_name_or_path: org/small\nreport_to: [wandb, tensorboard]\nrun_name: first\nproject: sums\n"
NOWHERE = "model_name_or_path: org/small\nreport_to: none\nrun_name: first\n"
COMMAND = "trl grpo --model_name_or_path org/small --report_to wandb --run_name first --wandb_project sums"
VARIABLES = "export WANDB_PROJECT=sums WANDB_ENTITY=team\nWANDB_NAME=first trl grpo --model_name_or_path org/small"
ELSEWHERE = "WANDB_PROJECT=sums trl grpo --model_name_or_path org/small --report_to tensorboard"
DISABLED = "WANDB_PROJECT=sums WANDB_MODE=disabled trl grpo --model_name_or_path org/small"
SCRIPT = """
os.environ["WANDB_PROJECT"] = "sums"
wandb.init(entity="team", name="first")
GRPOConfig(learning_rate=1e-6, report_to="wandb")
"""
AXOLOTL_MLFLOW = (
    "base_model: org/small\nrl: grpo\nmlflow_tracking_uri: http://mlflow.example\n"
    "mlflow_experiment_name: sums\nmlflow_run_name: first\nuse_tensorboard: true\n"
)
AXOLOTL_TRACKIO = "base_model: org/small\nrl: grpo\nuse_trackio: true\ntrackio_project_name: sums\nuse_wandb: false\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AXOLOTL, {"wandb": True, "project": "sums", "name": "first"}),
        (TRL, {"wandb": True, "tensorboard": True, "project": "sums", "name": "first"}),
        (COMMAND, {"wandb": True, "project": "sums", "name": "first"}),
        (NOWHERE, {}),
        (VARIABLES, {"wandb": True, "project": "team/sums", "name": "first"}),
        (ELSEWHERE, {"tensorboard": True}),
        (DISABLED, {}),
        (SCRIPT, {"wandb": True, "project": "team/sums", "name": "first"}),
        (AXOLOTL_MLFLOW, {"mlflow": True, "tensorboard": True, "project": "sums", "name": "first"}),
        (AXOLOTL_TRACKIO, {"trackio": True, "project": "sums"}),
    ],
)
def test_a_config_names_its_sinks(text: str, expected: dict[str, object]) -> None:
    values = documents.read(text.encode(), trl.BASIC_SETTINGS).values
    found = {path.removeprefix("sinks."): value for path, value in values.items() if path.startswith("sinks.")}
    assert found == expected


def test_keys_and_addresses_are_left_to_the_secrets() -> None:
    command = "WANDB_API_KEY=k3y WANDB_BASE_URL=https://wb.example trl grpo --model_name_or_path org/small"
    reading = documents.read(command.encode(), trl.BASIC_SETTINGS)
    notes = {note.key: note.text for note in reading.notes}
    assert "in the secrets" in notes["WANDB_API_KEY"]
    assert "Also send to" in notes["WANDB_BASE_URL"]
    assert "k3y" not in repr(reading)


def test_two_projects_are_a_contradiction() -> None:
    config = "base_model: org/small\nrl: grpo\nwandb_project: sums\nmlflow_experiment_name: differences\n"
    reading = documents.read(config.encode(), trl.BASIC_SETTINGS)
    assert reading.values["sinks.project"] == "sums"
    assert [note.key for note in reading.notes if note.verdict == KeyVerdict.CONTRADICTION] == [
        "mlflow_experiment_name"
    ]
