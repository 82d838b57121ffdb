"""What preflight says about the packages that send figures elsewhere."""

from __future__ import annotations

from dataclasses import replace

from runs.launch import preflight
from tests.runs.launch.preflight.test_preflight import FINE
from workers.contract.run.sinks import SinkSpec


def test_a_host_without_the_packages_is_told_to_install_them_first() -> None:
    [box] = FINE.hosts
    for packages, expected in (({}, True), ({"wandb": "0.31.0"}, False)):
        draft = replace(FINE, sinks=(SinkSpec("wandb"),), hosts=(replace(box, inventory={"packages": packages}),))
        causes = [one.cause for one in preflight.check(draft)]
        assert any("Weights & Biases needs wandb" in cause for cause in causes) is expected
