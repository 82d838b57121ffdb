"""Walks every route and every websocket: who may do what with it. A new route needs a line in route_rules.py."""

from __future__ import annotations

import collections
import re
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.test import Client
from django.urls import reverse

from controlplane.catalogue.datasets.models import Corpus, CorpusVersion
from controlplane.catalogue.hardware.models import ModelInspection
from controlplane.catalogue.joining import codes
from controlplane.catalogue.references.models import ReferenceCheck
from controlplane.platform.accounts.models import ApiScope, Role
from runs.api import application
from runs.engine import checkpoints
from runs.engine.alerts.delivery import queue_test
from runs.engine.jobs import archives
from runs.engine.machines.models import MachineRequest, MachineSource
from runs.engine.models import HealthPreset, Lease, ProfileTrial
from runs.engine.records import SampleRow
from runs.intake.host_api import ingest, uploads
from runs.urls import websocket_urlpatterns
from tests.controlplane.catalogue.environments.environments import an_environment
from tests.controlplane.people import make_user, signed_in
from tests.controlplane.platform.accounts.secret_rows import an_endpoint
from tests.controlplane.route_rules import (
    ACT,
    ADMIN,
    CODE,
    EDIT,
    HOST,
    OPEN,
    OPERATE,
    READ,
    RULES,
    SELF,
    TOKEN_ADMIN,
    TOKEN_OPERATE,
    TOKEN_READ,
)
from tests.everything.addresses import parameters, routes
from tests.runs.api.clients import Program
from tests.runs.builders import a_host, a_run, an_attempt, event
from tests.runs.engine.alerts.builders import a_target
from tests.runs.pages.served.builders import a_turn
from tests.runs.pages.sharing.builders import a_link

pytestmark = pytest.mark.django_db

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
WRITING = ("POST", "PUT", "PATCH", "DELETE")
BY_TOKEN = (HOST, TOKEN_READ, TOKEN_OPERATE, TOKEN_ADMIN)


ROUTES = dict(routes())


def of(*rules: str) -> list[str]:
    return [name for name in sorted(RULES) if RULES[name] in rules]


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """name -> the address of a route, with rows behind its parameters."""
    monkeypatch.setattr(settings, "DATA_DIR", tmp_path)
    attempt = an_attempt()
    version = attempt.run.dataset_version  # no file behind it: no page may need one to be drawn
    host, rewards = a_host(), attempt.run.reward_version
    lease = Lease.objects.create(attempt=attempt, host=host, resource="gpu:0", state=Lease.QUARANTINED)
    target = a_target()
    uploads.samples(attempt, 1, [{"step": 1, "row": 7, "completions": [{"text": "4", "reward": 1.0}]}])
    sample = SampleRow.objects.get()
    saved = {"step": 1, "path": "checkpoints/checkpoint-1", "bytes": 10, "kept": [1]}
    ingest.accept(attempt, [event(attempt.last_seq + 1, "checkpoint", **saved)])
    [checkpoint] = checkpoints.of_run(attempt.run)
    download = archives.start(checkpoint, attempt.run.owner, card="")
    archives.store(download, 0, b"tar", total_bytes=3)
    source = MachineSource.objects.create(name="cluster", kind="slurm", control_url="https://control.example")
    machine = MachineRequest.objects.create(source=source, host_name="cluster-1")
    values: dict[str, Any] = {
        "job_id": download.pk,
        "secret_id": an_endpoint().pk,
        "target_id": target.pk,
        "delivery_id": queue_test(target).pk,
        "token": "nonsense",
        "slug": "sums",
        "document": "runs",
        "token_id": Program().token.pk,
        "user_id": make_user().pk,
        "run_id": attempt.run_id,
        "preset_id": HealthPreset.objects.get(slug="mixed").pk,
        "attempt_id": attempt.pk,
        "dataset_id": version.dataset_id,
        "number": 1,
        "corpus_id": CorpusVersion.objects.create(corpus=Corpus.objects.create(name="c"), number=1).corpus_id,
        "sha256": "0" * 64,
        "kind": "csv",
        "config_id": attempt.run.reward_version.config_id,
        "profile_id": attempt.run.profile_id,
        "host_id": host.pk,
        "host": host.name,
        "engine": machine.source.kind,
        "source_id": machine.source_id,
        "machine_id": machine.pk,
        "code_id": codes.create("", by=None)[0].pk,
        "lease_id": lease.pk,
        "check_id": ReferenceCheck.objects.create(dataset_version=version, reward_version=rewards).pk,
        "trial_id": ProfileTrial.objects.create(owner=make_user(), host=host, model="/m").pk,
        "inspection_id": ModelInspection.objects.create(host=host, model="/m").pk,
        "name": "trainer",
        "thing": "profile",
        "kind_slug": "profile",
        "key": attempt.run.profile_id,
        "sample_id": sample.pk,
        "event_id": attempt.run.events.get(kind="checkpoint").pk,
        "environment_id": an_environment(id=rewards.config_id).environment_id,
        "item_id": rewards.config_id,  # a reward config or an environment
        "turn_id": a_turn(attempt.run.events.get(kind="checkpoint")).pk,
        "row": sample.row,
        "link_id": a_link(attempt.run)[0].pk,
        "view_id": 1,
    }

    def of(name: str) -> str:
        wanted = parameters(ROUTES[name])
        unknown = set(wanted) - set(values)
        assert not unknown, f"say in this fixture what {unknown} of {ROUTES[name]} may be"
        return reverse(name, kwargs={parameter: values[parameter] for parameter in wanted})

    return of


def test_every_route_has_a_rule_and_every_rule_a_route():
    assert set(ROUTES) == set(RULES)


def test_whoever_is_not_signed_in_gets_nowhere(address: Any, subtests: pytest.Subtests) -> None:
    for method in METHODS:
        with subtests.test(method=method):
            let_in = []
            for name in set(RULES) - set(of(OPEN, CODE)):
                answer = Client().generic(method, address(name))
                refused = answer.status_code in (401, 403, 405) or answer.get("Location", "").startswith("/sign-in/")
                if not refused:
                    let_in.append((name, answer.status_code))
            assert not let_in


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ADMIN])
def test_a_session_is_no_token_for_the_apis(role: Role, address: Any) -> None:
    client = turned_away(role)
    answers = [client.generic(method, address(name)) for name in of(*BY_TOKEN) for method in METHODS]
    assert {answer.status_code for answer in answers} <= {401, 403, 405}


@pytest.mark.parametrize("token", ["", "Bearer ", "Bearer wrong", "Basic d3Jvbmc6d3Jvbmc=", "Bearer \xff"])
def test_a_wrong_token_is_none(token: str, address: Any) -> None:
    answers = [
        Client().generic(method, address(name), b'{"name": "box"}', headers={"Authorization": token})
        for name in of(*BY_TOKEN)
        for method in ("GET", "POST")
    ]
    assert {answer.status_code for answer in answers} <= {401, 403, 405}


def turned_away(role: Role) -> Client:
    """A client who reads refusals in JSON: to draw them as pages takes about half the time."""
    client = signed_in(role)
    client.defaults["HTTP_ACCEPT"] = "application/json"
    return client


def closed(answer: Any) -> Any:
    """A file that nobody reads to its end stays open."""
    if answer.streaming:
        collections.deque(answer.streaming_content, maxlen=0)
    return answer


def test_a_viewer_reads_what_everybody_may_read(address: Any) -> None:
    client = signed_in(Role.VIEWER)
    answers = {name: closed(client.get(address(name))).status_code for name in of(READ, EDIT)}
    assert {name: code for name, code in answers.items() if code not in (200, 302)} == {}


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_no_link_and_no_form_leads_to_a_refusal(role: Role, address: Any) -> None:
    """Of all pages that are open to this role: links are followed, forms are sent (empty)."""
    client = signed_in(role)
    pages = of(READ, EDIT, SELF, *([ACT, OPERATE] if role == Role.OPERATOR else []))
    ways = {way: name for name in pages for way in _ways(closed(client.get(address(name))), address(name))}
    leave = ("POST", reverse("sign_out"))
    assert leave in ways
    # What is deleted by the way is not there any more, which is no refusal.
    answers = {way: closed(client.generic(*way)).status_code for way in sorted(ways.keys() - {leave})}
    assert {(ways[way], way) for way, code in answers.items() if code == 403} == set()


def _ways(answer: Any, page_address: str) -> set[tuple[str, str]]:
    """(method, address) of what a page offers, one of each address; the query doesn't decide who may."""
    page = "" if answer.streaming else answer.content.decode(errors="replace")
    posts = set(re.findall(r'(?:hx-post|formaction)="(/[^"#?]*)', page))
    for form in re.findall(r"<form[^>]*>", page):
        action = re.search(r'\baction="(/[^"#?]*)', form)
        if 'method="post"' in form:
            posts.add(action[1] if action else page_address)
    gets = set(re.findall(r'(?:href|hx-get|data-source)="(/[^"#?]*)', page))
    return {("GET", each) for each in gets if not each.startswith("/static/")} | {("POST", each) for each in posts}


@pytest.mark.parametrize("method", WRITING)
def test_a_viewer_changes_nothing(method: str, address: Any) -> None:
    client = turned_away(Role.VIEWER)
    answers = {name: client.generic(method, address(name)) for name in of(READ, EDIT, ACT, OPERATE, ADMIN)}
    assert {n: a.status_code for n, a in answers.items() if a.status_code not in (403, 405)} == {}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_pages_for_operators_are_closed_to_viewers(method: str, address: Any) -> None:
    client = turned_away(Role.VIEWER)
    answers = {name: client.generic(method, address(name)).status_code for name in of(OPERATE, ADMIN)}
    assert {name: code for name, code in answers.items() if code not in (403, 405)} == {}


def test_pages_for_admins_are_closed_to_operators(address: Any, subtests: pytest.Subtests) -> None:
    for method in METHODS:
        with subtests.test(method=method):
            client = turned_away(Role.OPERATOR)
            answers = {name: client.generic(method, address(name)).status_code for name in of(ADMIN)}
            assert {name: code for name, code in answers.items() if code not in (403, 405)} == {}


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_methods_that_nothing_uses_are_refused_to_admins_too(method: str, address: Any) -> None:
    client = turned_away(Role.ADMIN)
    answers = {name: client.generic(method, address(name)).status_code for name in RULES}
    assert {name: code for name, code in answers.items() if code not in (401, 403, 405)} == {}


def test_acts_take_a_post(address: Any) -> None:
    client = signed_in(Role.ADMIN)
    answers = {name: client.get(address(name)).status_code for name in of(ACT)}
    assert {name: code for name, code in answers.items() if code != 405} == {}


def test_a_post_from_another_site_is_refused(address: Any) -> None:
    client = signed_in(Role.ADMIN, csrf=True)
    names = set(RULES) - set(of(*BY_TOKEN, CODE))
    answers = {n: client.post(address(n), headers={"Origin": "https://evil.example"}).status_code for n in names}
    assert {name: code for name, code in answers.items() if code not in (403, 405)} == {}


def test_another_host_name_is_refused(address: Any) -> None:
    client = signed_in(Role.ADMIN)
    answers = {n: client.get(address(n), headers={"Host": "evil.example"}).status_code for n in sorted(RULES)}
    assert {name: code for name, code in answers.items() if code not in (400, 401, 403, 405)} == {}


def test_every_answer_carries_the_policy_and_its_companions(address: Any) -> None:
    client = signed_in(Role.ADMIN)
    answers = [closed(client.get(address(name))) for name in RULES]
    answers += [client.get("/nothing/here"), Client().get("/runs/"), Client().post("/sign-in/")]
    for answer in answers:
        policy = dict(part.split(" ", 1) for part in answer["Content-Security-Policy"].split("; "))
        assert policy["script-src"] == "'self'"
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["X-Frame-Options"] == "DENY"
        assert {"private", "no-store"} & set(answer["Cache-Control"].split(", ")), "no cache on the way may keep it"


def test_no_page_needs_an_inline_script(address: Any) -> None:
    client = signed_in(Role.ADMIN)
    for name in of(READ, EDIT, OPERATE, ADMIN, SELF):
        answer = closed(client.get(address(name)))
        page = b"" if answer.streaming else answer.content
        assert not re.search(rb"<script(?![^>]*\ssrc=)(?![^>]*application/json)[^>]*>", page), name
        assert not re.search(rb"\son(click|load|error|change|submit|input)\s*=", page), name
        assert b"javascript:" not in page, name


# --- tokens of people ----------------------------------------------------------------------------------------


def verbs() -> dict[str, str]:
    """Route -> the method that it is for."""
    routers = application.routers
    views = [view for router in routers for view in router.path_operations.values()]
    return {one.url_name: one.methods[0] for view in views for one in view.operations}


def answers_to(program: Program, names: list[str], address: Any) -> dict[str, Any]:
    sent, body = verbs(), {"content_type": "application/json"}
    return {name: closed(program.client.generic(sent.get(name, "GET"), address(name), **body)) for name in names}


def test_a_token_that_may_read_reads_everything(address: Any) -> None:
    answers = answers_to(Program(ApiScope.READ), of(TOKEN_READ), address)
    # The version of this test has no file, and its run no recorded step.
    missing = {
        "GET datasets/{dataset_id}/{number}/rows": 409,
        "GET datasets/{dataset_id}/{number}/export": 409,
        "GET runs/{run_id}/dry-run": 409,
        "GET runs/{run_id}/waterfall": 404,
        "GET compare/report": 422,  # of no runs
    }
    assert {name: a.status_code for name, a in answers.items() if a.status_code != 200} == missing


def test_a_token_that_may_only_read_changes_nothing_whoever_it_belongs_to(address: Any) -> None:
    for role in Role:
        program = Program(ApiScope.READ, user=make_user(role))
        answers = answers_to(program, of(TOKEN_OPERATE, TOKEN_ADMIN), address)
        assert {a.status_code for a in answers.values()} == {403}


def test_a_token_that_may_operate_does_not_administer_even_an_admins(address: Any) -> None:
    for role in (Role.OPERATOR, Role.ADMIN):
        answers = answers_to(Program(ApiScope.OPERATE, user=make_user(role)), of(TOKEN_ADMIN), address)
        assert {a.status_code for a in answers.values()} == {403}


def test_a_token_that_may_administer_is_let_in_everywhere(address: Any) -> None:
    answers = answers_to(Program(ApiScope.ADMIN), of(TOKEN_READ, TOKEN_OPERATE, TOKEN_ADMIN), address)
    assert {name: a.status_code for name, a in answers.items() if a.status_code in (401, 403, 405, 500)} == {}


def test_a_token_loses_what_its_users_role_loses(address: Any) -> None:
    program = Program(ApiScope.OPERATE)
    type(program.user).objects.filter(pk=program.user.pk).update(role=Role.VIEWER)
    assert {a.status_code for a in answers_to(program, of(TOKEN_OPERATE), address).values()} == {403}


def test_a_token_that_may_operate_is_let_in_everywhere(address: Any) -> None:
    answers = answers_to(Program(ApiScope.OPERATE), of(TOKEN_READ, TOKEN_OPERATE), address)
    assert {name: a.status_code for name, a in answers.items() if a.status_code in (401, 403, 405, 500)} == {}


def test_an_ended_token_is_none(address: Any) -> None:
    program = Program(ApiScope.READ)
    type(program.user).objects.filter(pk=program.user.pk).update(is_active=False)
    assert {a.status_code for a in answers_to(program, of(TOKEN_READ), address).values()} == {401}


# --- websockets --------------------------------------------------------------------------------------------

OURS = {"host": "testserver", "origin": "http://testserver"}


async def first_answer(path: str, session: str, headers: dict[str, str]) -> dict[str, Any]:
    """What a handshake gets: websocket.accept or websocket.close."""
    from controlplane.asgi import application

    sent = {**OURS, **headers} | ({"cookie": f"{settings.SESSION_COOKIE_NAME}={session}"} if session else {})
    scope = {
        "type": "websocket",
        "path": path,
        "query_string": b"",
        "headers": [(k.encode(), v.encode()) for k, v in sent.items() if v],
        "subprotocols": [],
    }
    communicator = ApplicationCommunicator(application, scope)
    await communicator.send_input({"type": "websocket.connect"})
    answer: dict[str, Any] = await communicator.receive_output()
    if answer["type"] == "websocket.accept":  # a refusal may come after it, with a code that the page understands
        answer = await communicator.receive_output()
    communicator.stop()
    return answer


def socket_paths(run_id: str) -> list[str]:
    patterns = [str(entry.pattern) for entry in websocket_urlpatterns]
    unknown = [p for p in patterns if set(re.findall(r":(\w+)>", p)) - {"run_id", "unknown"}]
    assert not unknown, f"say here what the parameters of {unknown} may be"
    return ["/" + re.sub(r"<\w+:\w+>", run_id, pattern) for pattern in patterns]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "headers", [{}, {"origin": "https://evil.example"}, {"origin": ""}, {"origin": "http://testserver:1"}]
)
@pytest.mark.parametrize("person", ["nobody", "viewer"])
async def test_a_socket_opens_only_for_the_signed_in_and_only_from_our_own_pages(person: str, headers: dict[str, str]):
    if person == "viewer" and not headers:
        return  # that one is let in; the sockets' own tests go on from there
    client = await sync_to_async(signed_in)(Role.VIEWER)
    session = client.cookies[settings.SESSION_COOKIE_NAME].value if person == "viewer" else ""
    run = await sync_to_async(a_run)()
    for path in socket_paths(run.pk):
        answer = await first_answer(path, session, headers)
        assert answer["type"] == "websocket.close", path
