"""Memory that attached servers keep of runs: named in receipts and before the next launch, until it is released."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from runs.engine.models import Attempt
from runs.engine.scheduling import kept_memory
from tests.controlplane.people import viewer
from tests.runs.builders import a_host, a_run

pytestmark = pytest.mark.django_db

SERVER = "http://127.0.0.1:8000"
STREAMED = {
    "trainer_gpus": 1,
    "cpu_slots": 0,
    "rollout": "server",
    "server": {"attached": [SERVER], "weight_sync": "nccl"},
}
SWAPPED = STREAMED | {"server": {"attached": [SERVER], "weight_sync": "lora"}}


def ended(host: Host, before: int, after: int, hardware: dict[str, Any] = STREAMED) -> Attempt:
    """An attempt that ended after all others, with GPU 0 proved free."""
    attempt = a_run(f"run {before} {after}").latest()
    gpu = {"gpu": "0", "before_mib": before, "peak_mib": 9_000, "after_mib": after, "seconds_to_free": 0.3}
    receipt = {"seconds_to_gone": 0.1, "processes_ended": 2, "orphans_found": 0, "survivors": [], "port_free": None}
    attempt.run.spec = {**attempt.run.spec, "hardware": {**attempt.run.spec["hardware"], **hardware}}
    attempt.run.save(update_fields=["spec"])
    attempt.host, attempt.status = host, "stopped"
    attempt.receipt = {**receipt, "free": True, "gpus": [gpu]}
    attempt.ended_at = timezone.now() + timedelta(seconds=Attempt.objects.count())
    attempt.save()
    return attempt


def kept(host: Host, used_mib: int) -> dict[int, tuple[int, int, tuple[str, ...]]]:
    found = kept_memory.on_host(host.pk, {0: used_mib})
    return {gpu: (each.mib, each.total_mib, each.servers) for gpu, each in found.items()}


def test_what_each_run_leaves_is_added_up() -> None:
    host = a_host(gpus=1)
    first, second = ended(host, 4, 292), ended(host, 292, 580)
    ended(host, 580, 580, SWAPPED)
    assert kept(host, 580) == {0: (288, 576, (SERVER,))}
    assert [[each.total_mib for each in kept_memory.of_attempt(attempt)] for attempt in (first, second)] == [
        [288],
        [576],
    ]


def test_a_server_that_was_restarted_keeps_nothing() -> None:
    host = a_host(gpus=1)
    ended(host, 4, 292)
    assert kept(host, 4) == {}
    ended(host, 4, 292)
    assert kept(host, 292) == {0: (288, 288, (SERVER,))}


def test_other_runs_and_noise_put_nothing_down_to_a_server() -> None:
    host = a_host(gpus=1)
    attempts = [ended(host, 4, 250, SWAPPED), ended(host, 250, 290)]
    assert kept(host, 290) == {}
    assert [kept_memory.of_attempt(attempt) for attempt in attempts] == [[], []]


def test_the_receipt_names_the_server_and_what_it_keeps() -> None:
    host = a_host(gpus=1)
    ended(host, 4, 292)
    page = viewer().get(f"/runs/{ended(host, 292, 580).run_id}/").content.decode()
    words = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "288 MiB of GPU 0 still used by an attached server" in words
    assert "576 MiB with earlier runs" in words
    assert f"The attached vLLM server {SERVER} keeps some memory" in words
