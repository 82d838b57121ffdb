"""What joining leaves on a host, and what it refuses to do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from workers.host import membership, service
from workers.host.membership import JoinArguments, Membership, NotAMember

ANSWER = b'{"name": "gpu1", "token": "t", "redis_url": "rediss://u:p@redis.example/0", "time": 5.0}'
REFUSAL = b'{"error": {"what": "This join code has expired.", "where": "code", "fix": "Make a new one."}}'
Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that answers everything alike: its address."""
    servers: list[HTTPServer] = []

    def start(status: int, body: bytes = b"", **headers: str) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        servers.append(HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_joining_leaves_private_files_and_says_how_far_the_clock_is_off(serve: Serve, tmp_path: Path) -> None:
    said: list[str] = []
    url = serve(200, ANSWER)
    membership.join(JoinArguments(url + "/", "code"), tmp_path / "h", report=said.append)
    kept = membership.read(tmp_path / "h")
    assert (kept.control_url, kept.name, kept.redis_url) == (url, "gpu1", "rediss://u:p@redis.example/0")
    assert {(tmp_path / "h" / name).stat().st_mode & 0o777 for name in ("host.json", "host_token")} == {0o600}
    assert (tmp_path / "h" / "host_token").read_text() == "t"
    assert "ahead of the control plane's" in said[-1]


def test_the_same_command_again_starts_without_asking(serve: Serve, tmp_path: Path) -> None:
    membership.join(JoinArguments(serve(200, ANSWER), "code"), tmp_path, report=print)
    spent = serve(403, REFUSAL)
    membership.join(JoinArguments(spent, "code"), tmp_path, report=print)
    assert membership.read(tmp_path).control_url == spent  # it has moved
    with pytest.raises(NotAMember, match="has expired"):
        membership.join(JoinArguments(spent, "another code"), tmp_path, report=print)
    assert membership.read(tmp_path).name == "gpu1"


def test_a_redirect_is_not_followed(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(NotAMember, match=r"redirects to https://evil\.example/x\. Redirects are not followed"):
        membership.join(JoinArguments(serve(301, Location="https://evil.example/x"), "code"), tmp_path, report=print)
    with pytest.raises(NotAMember, match="hasn't joined a control plane"):
        membership.read(tmp_path)


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (403, REFUSAL, "has expired. Make a new one."),
        (200, b"<html>", "could not join: invalid JSON"),
        (200, b'{"name": "x"}', "not as a control plane"),
        (502, b"bad gateway", "HTTP 502"),
        (404, b"nothing", "nothing"),
    ],
)
def test_each_other_answer_is_told(status: int, body: bytes, why: str, serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(NotAMember, match=why):
        membership.join(JoinArguments(serve(status, body), "code"), tmp_path, report=print)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://control.example", "is not encrypted"),
        ("ftp://control.example", "is not an address"),
        ("https://me:pw@control.example", "is not an address"),
        ("control.example", "is not an address"),
        ("http://127.0.0.1:1", "could not join"),
    ],
)
def test_addresses_that_are_not_used(url: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(NotAMember, match=why):
        membership.join(JoinArguments(url, "code"), tmp_path, report=print)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text("{")
    with pytest.raises(NotAMember, match=r"host\.json can't be read"):
        membership.read(tmp_path)


def test_the_workers_environment_keeps_what_the_user_chose() -> None:
    member = Membership("https://c", "gpu1", "rediss://u:p@r/0", ca_file="/ca.pem")
    source = {"GRPO_CPU_SLOTS": "3", "GRPO_RUNS_DIR": "/big", "GRPO_HOST_NAME": "x", "CONTROLPLANE_DATA": "/d"}
    made = service.environment_of(member, Path("/h"), source)
    assert (made["GRPO_CPU_SLOTS"], made["GRPO_RUNS_DIR"], made["GRPO_HOST_NAME"]) == ("3", "/big", "gpu1")
    assert made["REDIS_URL"] == "rediss://u:p@r/0?ssl_ca_certs=/ca.pem"
    assert "CONTROLPLANE_DATA" not in made
