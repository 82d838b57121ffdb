"""Where other tools' configs report to, as sinks of a run."""

from __future__ import annotations

import pytest

from controlplane.exchange import documents, trl

AXOLOTL = "base_model: org/small\nrl: grpo\nwandb_project: sums\nwandb_name: first\n"
TRL = "model_name_or_path: org/small\nreport_to: [wandb, tensorboard]\nrun_name: first\nproject: sums\n"
NOWHERE = "model_name_or_path: org/small\nreport_to: none\nrun_name: first\n"
COMMAND = "trl grpo --model_name_or_path org/small --report_to wandb --run_name first --wandb_project sums"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AXOLOTL, {"wandb": True, "project": "sums", "name": "first"}),
        (TRL, {"wandb": True, "tensorboard": True, "project": "sums", "name": "first"}),
        (COMMAND, {"wandb": True, "project": "sums", "name": "first"}),
        (NOWHERE, {}),
    ],
)
def test_a_config_names_its_sinks(text: str, expected: dict[str, object]) -> None:
    values = documents.read(text.encode(), trl.BASIC).values
    found = {path.removeprefix("sinks."): value for path, value in values.items() if path.startswith("sinks.")}
    assert found == expected
