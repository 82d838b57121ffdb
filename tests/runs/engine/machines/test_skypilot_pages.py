"""The form of a source of machines from SkyPilot, and what the Hardware page says of it."""

from __future__ import annotations

from typing import Any

import pytest

from runs.engine.machines.aws import INSTANCES
from runs.engine.machines.models import MachineSource
from tests.controlplane.people import admin
from tests.fakes.fake_skypilot import SkyPilotServer

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]
NEW = "/hardware/machines/new/skypilot/"
FILLED: dict[str, Any] = {
    **{"name": "AWS", "control_url": "https://grpo.example.org", "enabled": "on", "gpus": 1, "gpu_kind": "H100"},
    **{"gpu_memory_gib": 0, "cpus": 8, "memory_gib": 0, "minutes": 600, "most": 2, "idle_minutes": 10},
    **{"patience_minutes": 5, "option_secret": "SKY", "option_image": "registry.example.org/grpo-gpu:1.0"},
    **{"option_infra": "aws/us-east-1", "option_spot": "no"},
}


def test_the_form_offers_instance_types_with_their_prices() -> None:
    page = admin().get(NEW).content.decode()
    assert 'list="suggested-instance_type"' in page
    assert f'<option value="p5.48xlarge">{INSTANCES["p5.48xlarge"].sentence}</option>' in page
    assert "AWS on-demand list price, us-east-1" in page


def test_the_form_offers_the_secrets_that_there_are(sky: SkyPilotServer) -> None:
    page = admin().get(NEW).content.decode()
    assert 'list="suggested-secret"' in page
    assert '<option value="SKY">' in page


def test_the_form_begins_with_what_most_sources_want() -> None:
    page = admin().get(NEW).content.decode()
    assert 'name="cpus" value="8"' in page
    assert 'name="idle_minutes" value="10"' in page
    assert "Required for machines with GPUs unless you choose an instance type." in page  # so it isn't called optional
    assert "GPU type</label>" in page


def test_an_instance_type_of_aws_replaces_the_shape_that_was_entered(sky: SkyPilotServer) -> None:
    client = admin()
    answer = client.post(
        NEW, {**FILLED, "gpu_kind": "", "cpus": "", "option_instance_type": "g6e.12xlarge"}, follow=True
    )
    source = MachineSource.objects.get()
    shape = (source.gpus, source.gpu_kind, source.gpu_memory_gib, source.cpus, source.memory_gib)
    assert shape == (4, "L40S", 44, 48, 384)
    assert "4 L40S GPUs with 44 GiB, 48 cores, $10.49 per hour (list price)" in answer.content.decode()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"option_secret": "OTHER"}, "There is no secret OTHER of the kind “API server of SkyPilot”."),
        ({"gpu_kind": ""}, "SkyPilot needs a GPU type"),
        ({"option_spot": "perhaps"}, "Select a valid choice"),
        ({"option_image": "--privileged x"}, "Enter an image&#x27;s name, such as"),
    ],
)
def test_what_skypilot_could_not_do_is_said_at_once(sky: SkyPilotServer, changed: dict[str, str], words: str) -> None:
    answer = admin().post(NEW, {**FILLED, **changed})
    assert answer.status_code == 422
    assert words in answer.content.decode()
    assert not MachineSource.objects.exists()
