"""grpoctl against this process's own API, and against servers that misbehave."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core import signals
from django.core.handlers.wsgi import WSGIHandler
from django.db import close_old_connections

from controlplane.ctl import config
from controlplane.ctl.__main__ import main
from controlplane.ctl.client import Client, RequestRefused, ServerUnreachable
from controlplane.ctl.config import Access, NotConfigured
from controlplane.ctl.output import without_controls
from controlplane.ctl.parser import parser
from tests.runs.api.clients import Program
from tests.runs.builders import a_host, a_run, an_attempt

ELSEWHERE = Access("https://plane.example", "grpo_x")
Terminal = Callable[..., tuple[int, str]]


@pytest.fixture
def terminal(db: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    """grpoctl as an operator would run it: words -> (exit code, what it printed)."""
    for end in (signals.request_started, signals.request_finished):
        end.disconnect(close_old_connections)
    monkeypatch.setenv("GRPOCTL_URL", "http://localhost")
    monkeypatch.setenv("GRPOCTL_TOKEN", Program().text)
    plain = httpx.Client.__init__

    def inside(self: Any, **more: Any) -> None:
        plain(self, **{**more, "transport": httpx.WSGITransport(app=WSGIHandler())})

    monkeypatch.setattr(httpx.Client, "__init__", inside)

    def run(*words: str) -> tuple[int, str]:
        code = main(list(words))
        return code, "".join(capsys.readouterr())

    yield run
    for end in (signals.request_started, signals.request_finished):
        end.connect(close_old_connections)


def answers(*statuses: int, **headers: str) -> tuple[Client, list[httpx.Request], list[float]]:
    """A client of a server that answers so, what it was asked, and the client's pauses."""
    asked: list[httpx.Request] = []
    pauses: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(statuses[min(len(asked), len(statuses)) - 1], headers=headers, json={"items": []})

    return Client(ELSEWHERE, transport=httpx.MockTransport(answer), pause=pauses.append), asked, pauses


def test_runs_are_listed_read_and_changed(terminal: Terminal) -> None:
    run = a_run("sums")
    assert "sums" in terminal("runs")[1]
    assert json.loads(terminal("runs", "get", run.pk, "--json")[1])["status"] == "queued"
    terminal("runs", "change", run.pk, "--add-tag", "baseline", "--notes", "good")
    run.refresh_from_db()
    assert (run.tags, run.notes) == (["baseline"], "good")


def test_a_run_is_renamed_deleted_and_restored(terminal: Terminal) -> None:
    run = an_attempt("stopped").run
    assert terminal("runs", "rename", run.pk, "better")[0] == terminal("runs", "disk", run.pk)[0] == 0
    assert "better" in terminal("runs", "delete", run.pk)[1]
    assert "better" in terminal("deleted")[1]
    assert terminal("runs", "restore", run.pk)[0] == 0
    terminal("runs", "delete", run.pk)
    assert terminal("deleted", "purge", "run", run.pk)[0] == 0
    code, text = terminal("deleted", "restore", "run", run.pk)
    assert code == 1
    assert "can no longer be restored" in text


def test_what_a_run_produced_is_shown(terminal: Terminal, subtests: pytest.Subtests) -> None:
    for word in ["health", "evaluations", "completions", "receipts", "checkpoints", "events"]:
        with subtests.test(word=word):
            run = an_attempt().run
            assert terminal("runs", word, run.pk)[0] == 0
            assert terminal("runs", word, run.pk, "--json")[0] == 0


@pytest.mark.parametrize("thing", ["datasets", "rewards", "environments", "profiles", "models", "hosts"])
def test_the_catalogue_is_listed(terminal: Terminal, thing: str) -> None:
    a_host(gpus=1)
    a_run()
    assert terminal(thing)[0] == 0
    assert isinstance(json.loads(terminal(thing, "list", "--json")[1]), list)


def test_a_dataset_is_uploaded_and_a_host_drained_by_its_name(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "sums.jsonl"
    file.write_text('{"q": "1+1", "a": "2"}\n')
    code, text = terminal("datasets", "upload", str(file), "--json")
    assert (code, json.loads(text)["name"]) == (0, "sums")
    host = a_host()
    assert terminal("hosts", "drain", host.name)[0] == 0
    host.refresh_from_db()
    assert host.draining


def test_a_reward_config_is_created_and_saved_again_as_a_new_version(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("name: mine\ncomponents:\n  - {name: format, function: think_tags, weight: 1.0}\n")
    made = json.loads(terminal("rewards", "create", str(file), "--json")[1])
    file.write_text(file.read_text().replace("1.0", "0.5"))
    saved = terminal("rewards", "create", str(file), "--version-of", str(made["config"]), "--json")
    assert json.loads(saved[1])["version"] == 2


def test_any_operation_is_asked_for_by_its_path(terminal: Terminal, tmp_path: Path) -> None:
    run = a_run("sums")
    assert json.loads(terminal("api", f"/api/v1/runs/{run.pk}")[1])["name"] == "sums"
    (body := tmp_path / "body.json").write_text('{"notes": "good"}')
    assert json.loads(terminal("api", "-X", "PATCH", f"runs/{run.pk}", "-d", str(body))[1])["notes"] == "good"
    assert terminal("api", "users")[0] == 1


@pytest.mark.parametrize("path", ["https://evil.example/x", "//evil.example/x", "///evil.example", "../../settings/"])
def test_a_token_goes_to_no_other_address(path: str) -> None:
    client, asked, _ = answers(200)
    with pytest.raises(RequestRefused, match="not a path of the API"):
        client.ask("GET", path)
    assert asked == []


def test_a_refusal_says_what_where_and_what_to_do(terminal: Terminal) -> None:
    code, text = terminal("launch", "--set", "num_generations=1")
    assert code == 1
    assert "num_generations" in text
    assert terminal("runs", "get", "rnothing") == (
        1,
        "There is no run rnothing. (path) It may have been deleted. List the existing objects.\n",
    )


def test_nobody_there_has_an_exit_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPOCTL_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("GRPOCTL_TOKEN", "grpo_x")
    monkeypatch.setattr("controlplane.ctl.client.MAX_ATTEMPTS", 1)
    assert main(["me"]) == 5


def test_it_waits_as_long_as_it_is_told_and_tries_again() -> None:
    client, asked, pauses = answers(429, 503, 200, **{"Retry-After": "7"})
    assert client.get("runs") == {"items": []}
    assert (len(asked), pauses) == (3, [7.0, 7.0])


def test_a_token_is_not_sent_where_a_redirect_leads() -> None:
    client, asked, _ = answers(302, Location="https://evil.example/")
    with pytest.raises(RequestRefused, match=r"evil\.example"):
        client.get("runs")
    assert [request.url.host for request in asked] == ["plane.example"]


def test_a_change_whose_answer_was_lost_is_not_asked_for_twice() -> None:
    asked = []

    def break_off(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        raise httpx.ReadError("broken off")

    client = Client(ELSEWHERE, transport=httpx.MockTransport(break_off), pause=lambda seconds: None)
    with pytest.raises(ServerUnreachable):
        client.post("runs/r1/resume")
    assert len(asked) == 1
    with pytest.raises(ServerUnreachable):
        client.post("runs", headers={"Idempotency-Key": "k"})
    assert len(asked) == 5


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://plane.example", "http://10.0.0.1:8000", "http://[x"])
def test_an_address_that_is_none_or_not_encrypted_is_refused(url: str) -> None:
    with pytest.raises(NotConfigured):
        config.check_url(url)


def test_a_stored_token_is_readable_by_its_owner_alone_and_sent_to_its_own_address_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = config.store(ELSEWHERE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert config.access() == ELSEWHERE
    monkeypatch.setenv("GRPOCTL_URL", "https://other.example")
    with pytest.raises(NotConfigured, match="no token"):
        config.access()


def test_who_has_logged_in_needs_no_environment_until_the_logout(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "token").write_text(os.environ["GRPOCTL_TOKEN"] + "\n")
    monkeypatch.delenv("GRPOCTL_TOKEN")
    assert terminal("login", "--token-file", str(tmp_path / "token"))[0] == 0
    assert terminal("me")[0] == 0
    assert terminal("launch", "nowhere.yaml") == (1, "nowhere.yaml: No such file or directory.\n")
    terminal("logout")
    assert terminal("me") == (
        1,
        "There is no token for http://localhost. Create one under Settings, API tokens, then run: grpoctl login\n",
    )


def test_bash_completes_commands_and_options() -> None:
    from controlplane.ctl.completion import script

    ask = 'COMP_WORDS=(grpoctl runs g) COMP_CWORD=2; _grpoctl; echo "${COMPREPLY[@]}"'
    answer = subprocess.run(["bash", "-c", f"{script(parser(), 'bash')}\n{ask}"], capture_output=True, text=True)
    assert answer.stdout.split() == ["get"]


def test_a_log_cannot_command_the_terminal() -> None:
    assert without_controls("a\x1b[2Jb\r\nc\td 12\xa0MiB") == "a�[2Jb\nc\td 12 MiB"
