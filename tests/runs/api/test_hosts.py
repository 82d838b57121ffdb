"""Hosts and the queue by the API."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.joining import credentials
from controlplane.catalogue.joining.models import JoinCode
from controlplane.platform.accounts.models import ApiScope
from runs.engine.models import Lease, Run
from tests.host_tokens import host_token
from tests.runs.api.clients import Program
from tests.runs.builders import a_host, a_run, an_attempt

pytestmark = pytest.mark.django_db


def test_an_admin_sets_prices_and_what_a_host_may() -> None:
    host, program = a_host(), Program(ApiScope.ADMIN)
    wanted = {"gpu_hour_price": 2.5, "currency": "$", "serve_address": "0.0.0.0", "unsandboxed_allowed": True}
    answer = program.patch(f"hosts/{host.pk}", wanted)
    assert {name: answer.json()["item"][name] for name in wanted} == wanted
    assert (
        program.patch(f"hosts/{host.pk}", {"serve_address": "everywhere"}).json()["error"]["where"] == "serve_address"
    )
    assert program.patch(f"hosts/{host.pk}", {"serve_address": None}).json()["item"]["serve_address"] is None
    assert Host.objects.get().gpu_hour_price == 2.5
    assert "serve_address" not in Program().get(f"hosts/{host.pk}").json()["item"]


def test_an_operator_only_drains_a_host() -> None:
    host, program = a_host(), Program()
    assert program.patch(f"hosts/{host.pk}", {"draining": True, "gpu_hour_price": 0}).status_code == 403
    assert not Host.objects.get().draining


def test_without_a_redis_for_others_no_code_is_made(settings: Settings) -> None:
    settings.REDIS_URL, settings.HOST_REDIS_URL = "unix:///nowhere", ""
    assert Program().post("hosts/join-codes", {}).status_code == 409
    assert not JoinCode.objects.exists()


def test_a_host_is_revoked_once(settings: Settings) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    host, program = a_host(), Program()
    host_token(host.name)
    assert program.post(f"hosts/{host.pk}/revoke").status_code == 200
    assert credentials.active(host.name) is None
    assert program.post(f"hosts/{host.pk}/revoke").status_code == 409


def test_quarantined_resources_are_released_by_name() -> None:
    attempt, host = an_attempt(), a_host(gpus=2)
    for resource in ("gpu:0", "gpu:1"):
        Lease.objects.create(attempt=attempt, host=host, resource=resource, state=Lease.QUARANTINED)
    answer = Program().post(f"hosts/{host.pk}/release", {"resources": ["gpu:1", "gpu:9"]})
    assert answer.json() == {"released": ["gpu:1"]}


def test_the_queue_is_reordered_and_left() -> None:
    runs, program = [a_run(name) for name in ("one", "two")], Program()
    for run in runs:
        an_attempt("queued", run=run)
    moved = program.post(f"queue/{runs[1].pk}/move", {"put": "before", "other": runs[0].pk})
    assert [each["name"] for each in moved.json()["items"]] == ["two", "one"]
    assert program.delete(f"queue/{runs[1].pk}").status_code == 204
    assert program.delete(f"queue/{runs[1].pk}").status_code == 409
    assert Run.objects.get(pk=runs[1].pk).latest().status == "stopped"
