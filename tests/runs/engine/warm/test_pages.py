"""Warm servers on pages, in preflight, by the API and to their hosts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.platform.accounts.models import ApiScope
from controlplane.platform.http.tokens import attempt_token
from runs.engine.scheduling import limits
from runs.engine.spec import LaunchRequest
from runs.engine.warm.idle import IdleServers
from runs.engine.warm.models import WarmServer
from runs.launch.new_run import drafting, dry_run
from runs.launch.preflight.checks import servers
from tests.controlplane.people import operator, viewer
from tests.runs.api.clients import Program
from tests.runs.builders import a_host, a_user
from tests.runs.engine.warm.test_warm import HARDWARE, end, launched, the_server
from workers.contract.run.spec import LoraSpec

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


@pytest.fixture(autouse=True)
def host() -> Any:
    return a_host(gpus=2)


def words(page: Any) -> str:
    return " ".join(page.content.decode().split())


def test_the_hardware_page_shows_who_holds_what_and_ends_it() -> None:
    assert "Warm servers" not in words(viewer().get("/hardware/"))
    attempt = launched()
    server = the_server().attempt.run
    shown = words(viewer().get("/hardware/"))
    assert "tiny · warm server</a>" in shown
    assert f'by <a href="/runs/{attempt.run_id}/">first</a>' in shown
    assert "box · GPU 1" in shown
    assert f"/hardware/warm/{server.pk}/end" not in shown
    end(attempt)
    client = operator()
    assert f"/hardware/warm/{server.pk}/end" in words(client.get("/hardware/"))
    assert "is ending" in words(client.post(f"/hardware/warm/{server.pk}/end", follow=True))
    assert the_server().leaving.startswith("Ended by")


def test_the_pages_of_both_runs_name_each_other() -> None:
    attempt, client = launched(), viewer()
    server = the_server().attempt.run
    assert f'warm: <a href="/runs/{server.pk}/">' in words(client.get(f"/runs/{attempt.run_id}/"))
    assert f'<a href="/runs/{attempt.run_id}/">first</a>' in words(client.get(f"/runs/{server.pk}/"))
    end(attempt)
    assert "nobody for" in words(client.get(f"/runs/{server.pk}/"))


def test_who_repeats_the_run_elsewhere_starts_its_server_too() -> None:
    dry = dry_run.of_run(launched().run)
    assert [command["role"] for command in dry.commands()] == ["vllm", "trainer"]
    assert (dry.location.placement.warm, dry.location.placement.server_gpus) == (None, (1,))


def test_programs_list_and_end_them() -> None:
    attempt, program = launched(), Program()
    (item,) = program.get("warm-servers").json()["items"]
    assert (item["state"], item["used_by"], item["gpus"], item["holder"]) == ("starting", attempt.run_id, [1], "olga")
    assert program.get(f"runs/{attempt.run_id}").json()["warm_server"] == item["run"]
    ended = program.post(f"warm-servers/{item['run']}/end").json()["item"]
    assert (ended["ends_after_its_run"], ended["ends_at"]) == (True, None)
    assert program.post(f"warm-servers/{item['run']}/end").status_code == 409
    assert program.post(f"warm-servers/{attempt.run_id}/end").status_code == 409
    assert Program(ApiScope.READ).post(f"warm-servers/{item['run']}/end").status_code == 403


def test_its_supervisor_is_told_with_each_sync_who_uses_it(client: Client) -> None:
    attempt = launched()
    pk = the_server().pk
    headers = {"Authorization": f"Bearer {attempt_token(pk)}"}
    body = json.dumps({"lines": [], "turns_after": 0, "paced": True})
    answer = client.post(f"/api/attempts/{pk}/sync", body, content_type="application/json", headers=headers).json()
    assert answer["warm"] == {"user": attempt.pk, "leave": "", "former": []}
    assert "chat" not in answer


def test_preflight_says_whether_a_warm_server_is_used() -> None:
    user = a_user()
    assert "starts one" in said(user)
    end(launched())
    assert f"Your warm server {the_server().attempt.run_id}" in said(user)
    assert "starts one" in said(a_user("otto"))
    WarmServer.objects.update(leaving="Ended by olga.")
    assert "starts one" in said(user)


def said(user: Any) -> str:
    profile, _ = HardwareProfile.objects.get_or_create(name="warm", defaults={"spec": HARDWARE})
    grpo = {"max_steps": 20}
    request = LaunchRequest(model="/models/tiny", profile=profile, lora=LoraSpec(r=16), grpo=grpo)
    hosts = drafting.candidate_hosts(None)
    draft = drafting.draft_of(request, hosts=hosts, owner=limits.allowance(user))
    draft = drafting.with_idle(draft, user, request, hosts)
    (finding,) = servers.check_warm(draft)
    if draft.idle:
        assert drafting.forecast(draft, hosts).button.endswith("GPU 0, warm server")
        assert IdleServers.read().on(hosts[0].row) == list(draft.idle)
    return str(finding.cause)
