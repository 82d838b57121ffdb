"""A machine's code for its credentials, over HTTP; and what its user in Redis may do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from controlplane.catalogue.joining import codes, credentials, host_redis
from controlplane.catalogue.joining.models import HostCredential, JoinCode
from controlplane.platform.accounts.models import Role
from tests.controlplane.catalogue.joining.conftest import Shared
from tests.controlplane.people import make_user, operator
from tests.runs.api.clients import Program
from workers.contract.wire.joining import VERSION

pytestmark = pytest.mark.django_db


def a_code(name: str = "", **columns: Any) -> str:
    row, code = codes.create(name, by=None)
    JoinCode.objects.filter(pk=row.pk).update(**columns)
    return code


def join(code: str, /, **body: Any) -> Any:
    said = {"code": code, "hostname": "gpu1", "version": VERSION} | body
    return Client(enforce_csrf_checks=True).post("/api/hosts/join", said, content_type="application/json")


def refused(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["what"]


def test_a_code_becomes_a_token_and_an_address_of_redis(shared_redis: Shared) -> None:
    somebody = make_user(Role.OPERATOR)
    answer = join(codes.create("", by=somebody)[1]).json()
    assert (answer["name"], answer["version"], answer["url"]) == ("gpu1", VERSION, "http://testserver")
    assert credentials.is_valid("gpu1", answer["token"])
    assert shared_redis.client(answer["redis_url"]).ping()
    row = HostCredential.objects.get()
    assert (row.created_by, row.token_sha256 == answer["token"]) == (somebody, False)
    assert JoinCode.objects.get().used_by == "gpu1"


def test_a_program_makes_a_code_and_sees_that_it_was_used(shared_redis: Shared) -> None:
    program = Program()
    made = program.post("hosts/join-codes", {"name": "gpu1"}).json()
    url, code = made["command"].split()[-2:]
    assert (url, program.get(f"hosts/join-codes/{made['id']}").json()["used_by"]) == ("http://testserver", "")
    assert join(code).status_code == 200
    read = program.get(f"hosts/join-codes/{made['id']}").json()
    assert (read["used_by"], read["command"]) == ("gpu1", "")


def test_a_code_is_wrong_used_or_expired(shared_redis: Shared) -> None:
    late = timezone.now() - timedelta(minutes=1)
    assert join(used := a_code()).status_code == 200
    assert refused(join("made up"))[1].startswith("This join code is unknown")
    assert refused(join(used, name="gpu2")) == (
        403,
        "This join code was used by the host gpu1. Each code is for one machine.",
    )
    assert refused(join(a_code(expires_at=late), name="gpu2")) == (403, "This join code has expired.")
    assert HostCredential.objects.count() == 1


def test_a_second_host_of_a_name_keeps_its_code_and_gets_in_under_another(shared_redis: Shared) -> None:
    join(a_code())
    code = a_code()
    assert refused(join(code)) == (409, "A host named gpu1 has already joined.")
    assert join(code, name="gpu2").json()["name"] == "gpu2"


def test_a_code_for_a_name_is_for_that_name(shared_redis: Shared) -> None:
    code = a_code("gpu7")
    assert refused(join(code, name="gpu8")) == (409, "This code is for a host named gpu7, not gpu8.")
    assert join(code, hostname="no name at all").json()["name"] == "gpu7"


@pytest.mark.parametrize("version", ["9.0.0", "0.3.0", "", "x" * 200])
def test_a_version_too_far_away_is_told_and_keeps_its_code(version: str, shared_redis: Shared) -> None:
    code = a_code()
    assert refused(join(code, version=version))[0] == 426
    assert join(code, version="0.2.7").status_code == 200


@pytest.mark.parametrize("body", [{"code": 7}, {"name": "x" * 400}, {"hostname": "-"}, {"hostname": ""}])
def test_bad_input_is_named_and_nothing_is_half_done(body: dict[str, Any], shared_redis: Shared) -> None:
    assert refused(join(a_code(), **body))[0] == 400
    assert (HostCredential.objects.count(), JoinCode.objects.get().used_at) == (0, None)


def test_without_a_redis_for_others_no_code_is_used_up(settings: Settings) -> None:
    settings.REDIS_URL, settings.HOST_REDIS_URL = "unix:///nowhere", ""
    status, what = refused(join(a_code()))
    assert (status, "embedded Redis" in what, JoinCode.objects.get().used_at) == (409, True, None)
    settings.REDIS_URL = settings.HOST_REDIS_URL = "redis://127.0.0.1:1/0"
    assert refused(join(a_code()))[0] == 503
    assert HostCredential.objects.count() == 0


def test_the_address_for_hosts_has_their_user_and_our_database(settings: Settings) -> None:
    settings.REDIS_URL, settings.HOST_REDIS_URL = "rediss://u:p@redis:6380/3?ssl_ca_certs=/ours.pem", ""
    user = host_redis.user_of("gpu1")
    assert host_redis.url_for("gpu1", "pw") == f"rediss://{user}:pw@redis:6380/3"
    settings.HOST_REDIS_URL = "rediss://outside:443"
    assert host_redis.url_for("gpu1", "pw") == f"rediss://{user}:pw@outside:443/3"
    settings.HOST_REDIS_URL = "rediss://outside/1?ssl_cert_reqs=none"
    assert host_redis.url_for("gpu1", "pw") == f"rediss://{user}:pw@outside/1?ssl_cert_reqs=none"


def test_a_redis_user_without_the_right_is_named_on_the_page(shared_redis: Shared, settings: Settings) -> None:
    admin = shared_redis.client()
    admin.execute_command("ACL SETUSER", "modest", "on", ">pw", "~*", "+@all", "-acl")
    settings.REDIS_URL = settings.REDIS_URL.replace(":of-the-control-plane", "modest:pw")
    page = operator().post("/hardware/hosts/add/", {"name": "gpu1"}).content.decode()
    assert "needs ACL SETUSER and ACL DELUSER" in page
    settings.REDIS_URL = shared_redis.url
    assert operator().post("/hardware/hosts/add/", {"name": "gpu1"}).status_code == 200
    assert host_redis.user_of("").rstrip(".") not in admin.acl_users()


def test_guesses_are_throttled_by_address(shared_redis: Shared) -> None:
    assert [join("made up").status_code for _ in range(6)] == [403] * 5 + [429]
    elsewhere = Client(REMOTE_ADDR="10.0.0.9")
    body = {"code": a_code(), "hostname": "gpu1", "version": VERSION}
    assert elsewhere.post("/api/hosts/join", body, content_type="application/json").status_code == 200


def test_used_and_expired_codes_are_no_guesses(shared_redis: Shared) -> None:
    used, expired = a_code(), a_code()
    assert join(used).status_code == 200
    JoinCode.objects.filter(used_at=None).update(expires_at=timezone.now())
    assert {join(code).status_code for code in [used, expired] * 6} == {403}
    assert join("made up").status_code == 403


def test_names_that_differ_in_case_alone_are_one_name(shared_redis: Shared) -> None:
    assert join(a_code(), hostname="gpu1").status_code == 200
    assert refused(join(a_code(), hostname="GPU1")) == (409, "A host named gpu1 has already joined.")


def test_the_host_of_this_machine_stays_itself_when_its_names_case_changes() -> None:
    assert credentials.embedded_token("Box", "")
    token = credentials.embedded_token("box", "")
    assert token
    assert credentials.is_valid("box", token)
    assert HostCredential.objects.get().host_name == "box"


def test_a_host_in_redis_has_its_own_queue_and_nothing_else(shared_redis: Shared) -> None:
    mine = shared_redis.client(join(a_code()).json()["redis_url"])
    mine.lpush("host.gpu1", "a command")
    assert mine.brpop(["host.gpu1", "host.gpu1\x06\x163"], 1)
    others: list[Any] = [
        lambda: mine.lpush("host.gpu2", "x"),
        lambda: mine.lpush("control", "x"),
        lambda: mine.hgetall("unacked"),
        mine.keys,
        mine.flushall,
        lambda: mine.acl_list(),
        lambda: mine.config_get("requirepass"),
        lambda: mine.publish("run", "1"),
    ]
    for act in others:
        with pytest.raises(redis.exceptions.NoPermissionError):
            act()


def test_redis_forgets_users_and_gets_them_again(shared_redis: Shared) -> None:
    url = join(a_code()).json()["redis_url"]
    shared_redis.client().acl_deluser(host_redis.user_of("gpu1"))
    host_redis.reconcile()
    assert shared_redis.client(url).ping()
    credentials.revoke("gpu1", None)  # while Redis was away
    host_redis.reconcile()
    with pytest.raises(redis.AuthenticationError):
        shared_redis.client(url).ping()
