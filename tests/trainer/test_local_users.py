"""A vLLM server's requests: those of this machine's other users are refused on every route."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.waiting import wait_until
from tests.workers.supervisor.servers import free_port
from workers.contract.wire import local_sockets
from workers.trainer import local_users

NOBODY = 65534
STAND_IN = """
import argparse, importlib, sys, uvicorn
from pathlib import Path

async def app(scope, receive, send):
    with open("reached", "a") as file:
        file.write(scope["path"] + "\\n")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--port", type=int)
    parser.add_argument("--middleware", action="append", default=[])
    options = parser.parse_args()
    guarded = app
    for name in options.middleware:
        module, _, attribute = name.rpartition(".")
        guarded = getattr(importlib.import_module(module), attribute)(guarded)
    uvicorn.run(guarded, host="127.0.0.1", port=options.port, lifespan="off", log_level="warning")
"""
"""Stands in for vLLM's command line, and takes --middleware as vLLM documents it."""


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    package = tmp_path / "vllm/entrypoints/cli"
    package.mkdir(parents=True)
    (package / "main.py").write_text(STAND_IN)
    port = free_port()
    command = [sys.executable, "-m", "workers.trainer.vllm", "serve", "a/model", "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment)
    try:
        wait_until(lambda: process.poll() is not None or connects(port))
        yield port
    finally:
        process.kill()
        process.wait()


def connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def ask(port: int, path: str, *, leave: bool = False, headers: str = "") -> int:
    """The status of a response, or 0: `leave` closes the connection without waiting for one."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: here\r\n{headers}Content-Length: 0\r\n\r\n"
        connection.sendall(head.encode())
        return 0 if leave else int(connection.recv(100).split()[1])


def ask_as(uid: int, port: int, path: str, *, leave: bool = False, headers: str = "") -> int:
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.setuid(uid)
        os.write(writing, b"%d" % ask(port, path, leave=leave, headers=headers))
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    try:
        return int(os.read(reading, 10))
    finally:
        os.close(reading)


@pytest.mark.processes
@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_no_other_user_reaches_a_route_of_a_server(port: int, tmp_path: Path) -> None:
    routes = ("/v1/completions", "/v1/load_lora_adapter", "/collective_rpc", "/update_weights", "/health")
    assert [ask(port, route) for route in routes] == [200] * len(routes)
    (tmp_path / "reached").unlink()
    assert [ask_as(NOBODY, port, route) for route in routes] == [403] * len(routes)
    with socket.create_connection(("127.0.0.1", port)) as ours:
        for name in ("X-Forwarded-For", "Forwarded"):  # the address and port of a connection that is let through
            header = f"{name}: 127.0.0.1:{ours.getsockname()[1]}\r\n"
            assert ask_as(NOBODY, port, "/collective_rpc", headers=header) == 403
    for _ in range(20):  # the kernel attributes a closed connection to root
        ask_as(NOBODY, port, "/left", leave=True)
    assert ask(port, "/last") == 200
    assert (tmp_path / "reached").read_text() == "/last\n"


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_a_connections_owner_is_who_opened_it_until_it_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()) as one:
            accepted, client = listener.accept()
            assert local_sockets.client_owner(client, one.getpeername()) == os.getuid()
        assert local_sockets.client_owner(client, listener.getsockname()) is None
        accepted.close()
        assert local_sockets.client_owner(("127.0.0.1", client[1]), ("127.0.0.1", 1)) is None
    assert local_users._kernel_responds()
