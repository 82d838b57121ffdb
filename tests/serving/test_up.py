"""`up` as a person starts it: the command in a process of its own, everything real."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest

from tests.serving.command import Start, none_left, processes_of
from tests.waiting import wait_until

pytestmark = pytest.mark.processes


@pytest.mark.telling
def test_it_serves_lets_one_person_in_and_leaves_no_process(data: Path, manage: Start) -> None:
    up = manage("up", "--port", "0")
    link = up.wait_for(r"http://\S+/sign-in/once/\S+")[0]
    with httpx.Client(follow_redirects=True) as person:
        assert person.get(link).status_code == 200
        assert person.get(up.url() + "/runs/").url.path == "/runs/"
    with httpx.Client(follow_redirects=True) as second:
        second.get(link)
        assert second.get(up.url() + "/runs/").url.path == "/sign-in/"
    assert data.stat().st_mode & 0o777 == 0o700
    assert (data / "secret_key").stat().st_mode & 0o777 == 0o600
    assert (data / "host_token").stat().st_mode & 0o777 == 0o600
    assert up.interrupt() == 0
    assert "Stopped." in up.text
    none_left(data)


def test_a_second_one_on_the_same_data_says_so_and_a_dead_web_comes_back(data: Path, manage: Start) -> None:
    up = manage("up", "--port", "0")
    url = up.url()
    up.wait_for("Ctrl-C stops")
    second = manage("up", "--port", "0")
    assert second.process.wait(60) == 1
    assert "already serves" in second.text
    assert url in second.text

    web = next(p for p in processes_of(data) if "uvicorn" in p.cmdline())
    web.kill()
    up.wait_for("web restarted")
    # The socket is ours, so nobody was refused meanwhile.
    assert httpx.get(url + "/healthz", timeout=60).status_code == 200
    # Ctrl-C while a part is away: no different.
    next(p for p in processes_of(data) if "valkey-server" in p.name()).kill()
    assert up.interrupt() == 0
    assert "Stopped." in up.text
    none_left(data)


def test_killed_outright_it_takes_its_children_along(data: Path, manage: Start) -> None:
    up = manage("up", "--port", "0")
    up.wait_for("Ctrl-C stops")
    up.process.kill()
    up.process.wait()
    none_left(data)


def test_ctrl_c_while_it_starts_leaves_nothing(data: Path, manage: Start) -> None:
    up = manage("up", "--port", "0")
    wait_until(lambda: any("celery" in " ".join(p.cmdline()) or "uvicorn" in p.cmdline() for p in processes_of(data)))
    up.interrupt()
    none_left(data)


def test_a_busy_port_is_named(manage: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        up = manage("up", "--port", str(busy.getsockname()[1]))
        assert up.process.wait(60) == 1
    assert "is in use by another program" in up.text


def test_beyond_this_machine_it_wants_a_password_first(manage: Start) -> None:
    up = manage("up", "--port", "0", "--bind", "0.0.0.0")
    assert up.process.wait(60) == 1
    assert "Refusing to listen on 0.0.0.0" in up.text


def test_a_redis_that_does_not_answer_is_named(manage: Start) -> None:
    up = manage("up", "--port", "0", REDIS_URL="redis://127.0.0.1:1/0")
    assert up.process.wait(60) == 1
    assert "REDIS_URL isn't responding" in up.text
