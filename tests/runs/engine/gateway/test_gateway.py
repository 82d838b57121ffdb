"""What a run's page says of its gateway, who gets the key, and what is leased and told for it."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from django.test import Client

from controlplane.platform.accounts.models import Role
from controlplane.platform.http import tokens
from runs.engine.gateway import endpoint
from runs.engine.models import Attempt, Run
from runs.engine.scheduling import gpu_queue
from runs.intake.host_api import claiming
from tests.runs.builders import SERVER, a_host, a_run, a_user
from workers.contract.run import gateway
from workers.contract.run.episodes import EpisodeSpec, GatewaySpec
from workers.contract.run.spec import RunSpec
from workers.contract.wire.documents import from_dict

pytestmark = pytest.mark.django_db


def a_gateway(*, ports: list[int] | None = None, hardware: dict[str, Any] | None = None, **settings: Any) -> Run:
    run = a_run(host=a_host(), **({"hardware": hardware} if hardware else {}))
    run.spec["episodes"] = {"gateway": settings}
    run.save(update_fields=["spec"])
    if ports is not None:
        Attempt.objects.filter(run=run).update(placement={"host": "box", "ports": ports}, host=run.host)
    return Run.objects.get(pk=run.pk)


def signed_in(role: str) -> Client:
    client = Client()
    client.force_login(a_user(role, role))
    return client


@pytest.mark.parametrize(("kind", "ports"), [("agents", 1), ("atropos", 2)])
def test_the_ports_are_leased_beside_those_of_the_servers(kind: str, ports: int) -> None:
    assert gpu_queue.need_of(a_gateway(kind=kind)).ports == ports
    assert gateway.ports_of(from_dict(EpisodeSpec, {"gateway": {"kind": kind}})) == ports
    assert gateway.ports_of(EpisodeSpec()) == gateway.ports_of(None) == 0


def test_a_run_with_a_server_leases_both() -> None:
    assert gpu_queue.need_of(a_gateway(hardware=SERVER)).ports == 2


def test_the_trainer_gets_the_hash_of_the_key_alone() -> None:
    run = a_gateway()
    key = tokens.gateway_key(run.pk)
    assert claiming._key_variable(run, from_dict(RunSpec, run.spec)) == {
        gateway.KEY_DIGEST: hashlib.sha256(key.encode()).hexdigest()
    }
    assert key not in str(run.spec)
    assert key != tokens.gateway_key("another")


def test_the_page_shows_the_address_and_a_client_but_no_key() -> None:
    run = a_gateway(ports=[21000, 21001])
    page = signed_in(Role.VIEWER).get(f"/runs/{run.pk}/").content.decode()
    assert "http://127.0.0.1:21001" in page
    assert "from openai import OpenAI" in page
    assert tokens.gateway_key(run.pk) not in page
    assert "only shown to operators" in page


def test_an_operator_is_shown_the_key_and_a_viewer_is_not() -> None:
    run = a_gateway(ports=[21000])
    answer = signed_in(Role.OPERATOR).post(f"/runs/{run.pk}/gateway/key")
    assert tokens.gateway_key(run.pk) in answer.content.decode()
    assert answer["Cache-Control"] == "no-store"
    assert signed_in(Role.VIEWER).post(f"/runs/{run.pk}/gateway/key").status_code == 403


def test_a_run_without_a_gateway_has_no_key() -> None:
    run = a_run()
    assert endpoint.of(run) is None
    assert signed_in(Role.OPERATOR).post(f"/runs/{run.pk}/gateway/key").status_code == 404


def test_an_environment_of_atropos_is_started_with_the_group_size_of_the_run() -> None:
    found = endpoint.of(a_gateway(ports=[21000, 21001], kind="atropos", max_token_len=512))
    assert found is not None
    assert (found.url, found.api) == ("http://127.0.0.1:21000", "http://127.0.0.1:21001")
    assert "--env.max_token_length 512" in found.code
    assert "--env.rollout_server_url http://127.0.0.1:21001" in found.code


def test_the_client_on_the_page_is_valid_python_of_about_twenty_lines() -> None:
    found = endpoint.of(a_gateway(ports=[21000]))
    assert found is not None
    compile(found.code, "agent.py", "exec")
    assert len(found.code.splitlines()) <= 20


def test_beyond_loopback_the_address_names_the_host() -> None:
    found = endpoint.of(a_gateway(ports=[21000], **vars(GatewaySpec(open_beyond_loopback=True))))
    assert found is not None
    assert (found.url, found.only_there) == ("http://box:21000", False)


def test_the_spec_of_a_run_says_what_tasks_show_and_how_often_atropos_may_ask() -> None:
    run = a_gateway(kind="atropos", shows_answer=True, requests=8, interval_s=5)
    page = signed_in(Role.VIEWER).get(f"/runs/{run.pk}/spec/").content.decode()
    assert "8 per 5 s; the others wait" in page
    assert "with the answer and the tests" in page
