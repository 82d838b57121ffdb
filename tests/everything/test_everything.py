"""An installation that has everything: each page, operation, file and message opens with it, as each role."""

from __future__ import annotations

import html
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx
import pytest
from django.apps import apps
from django.core import signals
from django.core.handlers.wsgi import WSGIHandler
from django.db import close_old_connections, transaction
from django.test import Client, override_settings
from django.utils import timezone
from jsonschema import Draft202012Validator
from pytest_django.plugin import DjangoDbBlocker

from controlplane.ctl.__main__ import main as grpoctl
from controlplane.ctl.parser import CATALOGUE, PARTS
from controlplane.platform.accounts.models import ApiScope, Role, User
from runs.engine import checkpoints, sentences
from runs.engine.alerts import formatting
from runs.engine.alerts.models import AlertDelivery
from runs.engine.models import Run
from runs.engine.records import RunEvent
from runs.insight.health.judging.rules import RULES as HEALTH_RULES
from tests.controlplane.people import signed_in
from tests.controlplane.route_rules import (
    ACT,
    ADMIN,
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
from tests.everything import rows
from tests.everything.addresses import Addresses, routes
from tests.everything.bodies import Bodies, operations
from tests.everything.rows import Known
from tests.runs.api.clients import Program
from workers.diagnosis import catalogue

pytestmark = pytest.mark.django_db
ROUTES = dict(routes())
OTHERS = {"sessions", "auth", "contenttypes", "account", "socialaccount"}
"""Apps of Django and of its sign-in library, whose rows no page shows."""
PAGES = (OPEN, READ, SELF, EDIT, OPERATE, ADMIN)
TELLING = ("trained", "episodes", "unhealthy", "of deleted things", "of a newer version", "clone", "not proved free")
"""Runs of which all pages are opened, by the beginning of their names."""
PROGRAMS = (TOKEN_READ, TOKEN_OPERATE, TOKEN_ADMIN)
CLOSED: dict[Role, tuple[str, ...]] = {Role.VIEWER: (OPERATE, ADMIN), Role.OPERATOR: (ADMIN,), Role.ADMIN: ()}
"""What a role may not read."""
APART = {"ready", "sign_out"}
"""`ready` needs a Redis, and signing out ends the session that the walk needs."""
UNFIT = re.compile(
    r"\bNone\b(?! of )|\{\{|\{%|Traceback|Invalid [dD]ate|\bnan\b|\bNaN\b|\bundefined\b|object at 0x|(?<!/)\{\w+\}"
)
FIT = ("or None to leave the row out", "The loss became NaN", "had a NaN or infinite", "{answer} if there is one")
"""Sentences with such a word that are meant so."""
NOT_SPOKEN = re.compile(r"<(script|style|pre|textarea|code|template)\b.*?</\1>|<[^>]*>|<!--.*?-->", re.DOTALL)
LINK = re.compile(r'(?:href|hx-get|data-source|action|src)="(/[^"#]*\?[^"#]*)')


@pytest.fixture(scope="module", autouse=True)
def known(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Known]:
    """Everything, made once; all of it is gone after the last test."""
    folder = tmp_path_factory.mktemp("everything")
    hashers = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    changed = override_settings(DATA_DIR=folder, PASSWORD_HASHERS=hashers)
    with django_db_blocker.unblock(), changed, transaction.atomic():
        yield rows.fill(folder)
        transaction.set_rollback(True)


@dataclass(frozen=True)
class Answer:
    status: int
    kind: str
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    @property
    def spoken(self) -> str:
        return html.unescape(NOT_SPOKEN.sub(" ", self.text))


Walks = Callable[[Role], list[tuple[str, str, Answer]]]


def ask(client: Client, method: str, address: str, body: bytes = b"", kind: str = "application/json") -> Answer:
    """The answer to a request, whose changes are undone."""
    client.raise_request_exception = False
    with transaction.atomic():
        answer: Any = client.generic(method, address, body, content_type=kind)
        content = b"".join(answer.streaming_content) if answer.streaming else answer.content
        transaction.set_rollback(True)
    return Answer(answer.status_code, answer.get("Content-Type", ""), content)


def walked(role: Role, known: Known) -> Iterator[tuple[str, str, Answer]]:
    """(route, address, answer) of every page, as somebody with the role gets it."""
    client = signed_in(role, user=User.objects.filter(role=role, is_active=True).order_by("pk")[0])
    at = addresses(known, 4 if role == Role.ADMIN else 1)
    for name in (name for name, rule in RULES.items() if rule in PAGES and name not in APART):
        for address in at.of(name, ROUTES[name]):
            yield name, address, ask(client, "GET", address)


@pytest.fixture(scope="module")
def walks(known: Known) -> Walks:
    """The walk of a role, made once."""
    return cache(lambda role: list(walked(role, known)))


def addresses(known: Known, rows: int) -> Addresses:
    """Of rows that differ: a run of each kind, each status and each name that says what it is."""
    runs = [{"run_id": pk} for pk in telling_runs()]
    models = [point.event.pk for run in Run.objects.filter(name="trained") for point in checkpoints.of_run(run)]
    found = Addresses(rows=rows, token=["nonsense", known.shared], thing=["run"], kind_slug=["run"])
    gone = [{"key": pk} for pk in Run.every.exclude(deleted_at=None).values_list("pk", flat=True)]
    found.read |= {("run_id",): runs[: 3 * rows + 3], ("event_id",): [{"event_id": pk} for pk in models]}
    found.read |= {("key",): gone, ("attempt_id",): [{"attempt_id": f"{run['run_id']}-1"} for run in runs[:rows]]}
    found.read[("event_id", "job_id")] = [{"event_id": models[0], "job_id": job.pk} for job in downloads()]
    turns = Run.objects.get(kind="serve").turns.values_list("pk", flat=True)
    found.read[("event_id", "turn_id")] = [{"event_id": models[0], "turn_id": pk} for pk in turns]
    return found


def downloads() -> list[Run]:
    return list(Run.objects.filter(kind="archive"))


def telling_runs() -> list[str]:
    """The runs that were made to be looked at, then the first run of each kind and status."""
    first: dict[tuple[bool, object], str] = {}
    for run in Run.every.order_by("created_at").prefetch_related("attempts"):
        named = run.name if run.name.startswith(TELLING) else ""
        first.setdefault((not named, named or (run.kind, run.latest().status, run.deleted_at is None)), run.pk)
    return [first[key] for key in sorted(first, key=lambda key: key[0])]


def unfit(answer: Answer) -> list[str]:
    """What no page says, with the words around it."""
    text = answer.spoken
    for fit in FIT:
        text = text.replace(fit, "")
    found = UNFIT.finditer(text)
    return [" ".join(text[max(0, match.start() - 60) : match.end() + 30].split()) for match in found]


# --- everything is there -------------------------------------------------------------------------------------


def test_every_table_has_a_row() -> None:
    """A new table needs rows in tests/everything."""
    tables = [model for model in apps.get_models() if model._meta.app_label not in OTHERS]
    assert [model._meta.label for model in tables if not model._base_manager.exists()] == []


def test_every_health_rule_has_a_finding_of_each_level_with_its_sentences() -> None:
    healths = Run.objects.exclude(health={}).values_list("health", flat=True)
    found = [finding for health in healths for finding in health.get("findings") or ()]
    assert {finding["rule"] for finding in found} == {rule.id for rule in HEALTH_RULES}
    assert {finding["level"] for finding in found} == {"bad", "warning", "note"}
    for finding in found:
        assert "{" not in finding["sentence"] + finding["try"] + finding["metric"] + finding["find"]


def test_every_cause_of_failure_is_diagnosed() -> None:
    events = RunEvent.objects.filter(kind="diagnosed").values_list("data", flat=True)
    found = {row["id"] for data in events for row in data["diagnoses"]}
    assert found > set(catalogue.entries())


def test_every_event_of_a_timeline_has_a_sentence() -> None:
    texts = {event.kind: sentences.of_event(event) for event in RunEvent.objects.all()}
    assert set(sentences._EVENTS) <= set(texts)
    assert [text for text in texts.values() if "{" in text] == []


# --- pages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", list(Role))
def test_every_page_opens_for_those_who_may_read_it(role: Role, walks: Walks) -> None:
    client = signed_in(role, user=User.objects.filter(role=role, is_active=True).order_by("pk")[0])
    wrong: list[object] = []
    counted, links = Counter[int](), dict[object, str]()
    for name, address, answer in walks(role):
        counted[answer.status] += 1
        closed = RULES[name] in CLOSED[role]
        allowed = (403, 405) if closed else (200, 204, 286, 302, 404, 405, 409, 410)
        wrong += [] if answer.status in allowed else [(address, answer.status)]
        wrong += [(address, words) for words in _read(answer)]
        for link in LINK.findall(answer.text) if "html" in answer.kind else ():
            link = html.unescape(link)
            links.setdefault((name, re.sub(r"\d+|=[^&]*", "", link), answer.status), link)
    for link in links.values():
        answer = ask(client, "GET", link)
        wrong += [(link, answer.status)] if answer.status >= 500 or answer.status == 403 else []
        wrong += [(link, words) for words in _read(answer)]
    assert wrong == []
    assert counted[200] > 150


def _read(answer: Answer) -> Iterator[str]:
    """What is wrong with a page, or with a file that people download."""
    if "html" in answer.kind:
        yield from unfit(answer)
        whole = "<!doctype html>" in answer.text[:200].lower()
        if whole and not answer.text.rstrip().endswith("</html>"):
            yield "the page ends early"
    elif answer.kind.startswith("application/json"):
        json.loads(answer.body, parse_constant=pytest.fail)
    elif answer.kind == "application/zip":
        with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
            assert archive.testzip() is None
            for name in archive.namelist():
                if name.endswith(".md"):
                    yield from unfit(Answer(200, "", archive.read(name)))


def test_nobody_opens_what_needs_an_account(known: Known) -> None:
    at, client = addresses(known, 1), Client()
    for name in (name for name, rule in RULES.items() if rule not in (OPEN,) and name not in APART):
        for address in at.of(name, ROUTES[name]):
            answer: Any = client.get(address)
            assert answer.status_code in (401, 403, 405) or answer["Location"].startswith("/sign-in/"), address


# --- programs ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def schema(known: Known) -> dict[str, Any]:
    answer = ask(Client(), "GET", "/api/v1/openapi.json")
    return dict(json.loads(answer.body))


def test_every_operation_reads_everything_as_its_schema_says(known: Known, schema: dict[str, Any]) -> None:
    client = Program(ApiScope.ADMIN, user=User.objects.get(username="ana")).client
    at, described = addresses(known, 5), operations(schema)
    wrong: list[object] = []
    counted = Counter[str]()
    for name in (name for name, rule in RULES.items() if rule in PROGRAMS and name.startswith("GET ")):
        content = described[name]["responses"]["200"].get("content", {})
        declared = content.get("application/json", {}).get("schema")
        check = Draft202012Validator({**declared, "components": schema["components"]}) if declared else None
        for address in at.of(name, ROUTES[name]):
            answer = ask(client, "GET", address)
            wrong += [(address, answer.status)] if answer.status >= 500 else []
            if not answer.kind.startswith("application/json"):
                continue
            told = json.loads(answer.body, parse_constant=pytest.fail)
            if answer.status == 200 and check is not None:
                wrong += [(address, error.message[:200]) for error in check.iter_errors(told)]
            elif answer.status >= 400:
                wrong += [] if set(told["error"]) == {"what", "where", "fix"} else [(address, told)]
            counted[name] += answer.status == 200
    assert wrong == []
    assert len([name for name, times in counted.items() if times]) > 60


@pytest.mark.parametrize("whole", [False, True], ids=["required", "whole"])
def test_every_operation_that_changes_something_answers(whole: bool, known: Known, schema: dict[str, Any]) -> None:
    client = Program(ApiScope.ADMIN, user=User.objects.get(username="ana")).client
    at, described, bodies = addresses(known, 2), operations(schema), Bodies(schema)
    wrong: list[object] = []
    counted = Counter[int]()
    for name in (name for name, rule in RULES.items() if rule in PROGRAMS and not name.startswith("GET ")):
        if name not in described:
            continue
        body = bodies.of(described[name], whole=whole)
        for address in at.of(name, ROUTES[name]):
            sent = b"" if body is None else json.dumps(body).encode()
            answer = ask(client, name.partition(" ")[0], address, sent)
            counted[answer.status] += 1
            wrong += [(name, address, body, answer.text[:300])] if answer.status >= 500 else []
            if answer.status >= 400:
                wrong += [] if "error" in answer.text else [(name, answer.text[:300])]
    assert wrong == []
    assert counted[200] + counted[201] + counted[204] > 50


def test_a_host_gets_what_is_for_hosts(known: Known) -> None:
    at = addresses(known, 4)
    for token in known.host_tokens.values():
        client = Client(headers={"Authorization": f"Bearer {token}"})
        for name in (name for name, rule in RULES.items() if rule == HOST):
            for method, address in ((m, a) for m in ("GET", "POST") for a in at.of(name, ROUTES[name])):
                answer = ask(client, method, address, b"{}")
                assert answer.status < 500, (name, address, answer.text)
        for name in (name for name, rule in RULES.items() if rule in (*PROGRAMS, ADMIN, OPERATE)):
            for address in list(at.of(name, ROUTES[name]))[:1]:
                assert ask(client, "GET", address).status in (302, 401, 403, 405), name


# --- forms ---------------------------------------------------------------------------------------------------


def test_every_form_is_sent_as_it_stands_without_an_error(
    walks: Walks,
) -> None:
    """Each form of each page, with what the page has filled in, as a browser sends it."""
    client = signed_in(user=User.objects.get(username="ana"))
    sent: dict[str, int] = {}
    for name, address, answer in walks(Role.ADMIN):
        for target, values in _forms(answer, address) if "html" in answer.kind and RULES[name] != OPEN else ():
            kind = re.sub(r"\d+|r[a-z2-9]{9}\b", "#", target)
            if kind not in sent and not target.startswith(("/sign-out", "/static")):
                sent[kind] = ask(client, "POST", target, *_encoded(values)).status
    assert {target: status for target, status in sent.items() if status >= 500 or status in (403, 405)} == {}
    assert len(sent) > 60


def _forms(answer: Answer, address: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for head, content in re.findall(r"<form\b([^>]*)>(.*?)</form>", answer.text, re.DOTALL):
        action = re.search(r'\baction="(/[^"#]*)', head)
        if 'method="post"' in head and (action or "</html>" in answer.text):
            yield html.unescape(action[1]) if action else address, list(_values(content))


def _values(form: str) -> Iterator[tuple[str, str]]:
    """The fields of a form with their values: those of inputs, the chosen options, and texts."""
    attribute = lambda tag, name: (re.search(rf'\b{name}="([^"]*)"', tag) or ["", ""])[1]  # noqa: E731
    for tag in re.findall(r"<input\b[^>]*>", form):
        off = attribute(tag, "type") in ("checkbox", "radio") and " checked" not in tag
        if attribute(tag, "name") and not off and attribute(tag, "type") not in ("file", "submit"):
            yield attribute(tag, "name"), html.unescape(attribute(tag, "value"))
    for head, options in re.findall(r"<select\b([^>]*)>(.*?)</select>", form, re.DOTALL):
        tags = re.findall(r"<option\b[^>]*>", options)
        chosen = [tag for tag in tags if " selected" in tag] or tags[:1]
        yield from ((attribute(head, "name"), html.unescape(attribute(tag, "value"))) for tag in chosen)
    for head, text in re.findall(r"<textarea\b([^>]*)>(.*?)</textarea>", form, re.DOTALL):
        yield attribute(head, "name"), html.unescape(text)


def _encoded(values: list[tuple[str, str]]) -> tuple[bytes, str]:
    return str(httpx.QueryParams([pair for pair in values if pair[0]])).encode(), "application/x-www-form-urlencoded"


# --- messages and the command line ---------------------------------------------------------------------------


def test_every_message_is_written() -> None:
    now = timezone.now()
    lines = [formatting.line(sent, "https://grpo.example/", now) for sent in AlertDelivery.objects.all()]
    assert {line.head for line in lines} >= {*formatting.HEADS.values(), "Test"}
    for line in lines:
        subject, text = formatting.mail([line])
        told = json.loads(formatting.slack([line]))["text"]
        assert [words for each in (subject, text, told) for words in unfit(Answer(200, "", each.encode()))] == []
        assert line.text
        assert line.subject
        assert line.link.startswith("https://grpo.example/")
    assert "more." in formatting.mail(lines)[1]


def test_every_command_that_only_reads_prints_everything(
    known: Known, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRPOCTL_URL", "http://localhost")
    monkeypatch.setenv("GRPOCTL_TOKEN", Program(ApiScope.ADMIN, user=User.objects.get(username="ana")).text)
    plain: Callable[..., None] = httpx.Client.__init__
    transport = {"transport": httpx.WSGITransport(app=WSGIHandler())}
    monkeypatch.setattr(httpx.Client, "__init__", lambda self, **more: plain(self, **{**more, **transport}))
    for end in (signals.request_started, signals.request_finished):
        end.disconnect(close_old_connections)
    run = Run.objects.get(name="trained").pk
    words = [["runs"], ["me"], ["metrics", run], *([name] for name in CATALOGUE)]
    words += [["runs", part, run] for part in ("get", "disk", *PARTS)]
    for command in words:
        for more in ((), ("--json",)):
            code = grpoctl([*command, *more])
            printed = capsys.readouterr()
            assert (code, "Traceback" in printed.err) == (0, False), (command, printed.err)
            if more:
                json.loads(printed.out)
    for end in (signals.request_started, signals.request_finished):
        end.connect(close_old_connections)


def test_an_act_that_needs_an_operator_is_closed_to_viewers(known: Known) -> None:
    client = signed_in(user=User.objects.get(username="vera"))
    at = addresses(known, 1)
    acts = [name for name, rule in RULES.items() if rule == ACT]
    assert {ask(client, "POST", address).status for name in acts for address in at.of(name, ROUTES[name])} == {403}
