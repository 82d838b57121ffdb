"""Three clients on another machine: each launches the run of a spec again, watches it until it trains, and stops it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.waiting import wait_until

if TYPE_CHECKING:
    import mcp

NAME = "again #trainer=gate"
WATCHED_S = 90.0


@dataclass
class Person:
    """Someone at a machine (`at`: the words that run a command there), with a token."""

    at: list[str]
    url: str
    token: str
    ca_file: str = ""
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        own = {"GRPOCTL_URL": self.url, "GRPOCTL_TOKEN": self.token}
        return {**os.environ, **own, **self.settings}

    def types(self, *words: str, typed: str = "") -> str:
        command = [*self.at, *words]
        done = subprocess.run(command, env=self.environment, cwd=ROOT, input=typed, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


Client = Callable[[Person, str], Awaitable[str]]


async def by_curl(person: Person, spec_of: str) -> str:
    runs = f"{person.url}/api/v1/runs"
    spec = _curl(person, f"{runs}/{spec_of}/spec")
    run_id: str = _curl(person, runs, body={"name": NAME, "spec": spec})["run"]["id"]
    wait_until(lambda: _curl(person, f"{runs}/{run_id}")["status"] == "running", str, WATCHED_S)
    assert _curl(person, f"{runs}/{run_id}/stop", body={"mode": "now"})["changed"]
    return run_id


async def by_grpoctl(person: Person, spec_of: str) -> str:
    grpoctl = [sys.executable, "-m", "controlplane.ctl"]
    text = person.types(*grpoctl, "runs", "get", spec_of, "-o", "yaml")
    run_id = person.types(*grpoctl, "launch", "-", "--name", NAME, typed=text).strip()
    running = [*grpoctl, "runs", "--status", "running"]
    wait_until(lambda: run_id in person.types(*running), lambda: person.types(*grpoctl, "runs"), WATCHED_S)
    person.types(*grpoctl, "stop", run_id, "--now", "--wait")
    return run_id


async def by_mcp(person: Person, spec_of: str) -> str:
    import anyio
    import mcp  # whoever collects the tests would wait for it

    command, *args = [*person.at, sys.executable, "-m", "controlplane.ctl", "mcp"]
    server = mcp.StdioServerParameters(command=command, args=args, env=person.environment, cwd=str(ROOT))
    async with mcp.Client(server) as client:
        spec = await _asked(client, "get_spec", run_id=spec_of)
        launched = await _asked(client, "launch_run", document=json.dumps({**spec, "name": NAME}))
        run_id: str = launched["run"]["id"]
        deadline = time.monotonic() + WATCHED_S
        while (seen := await _asked(client, "get_run", run_id=run_id))["status"] != "running":
            assert time.monotonic() < deadline, seen
            await anyio.sleep(0.1)
        assert (await _asked(client, "stop_run", run_id=run_id, mode="now"))["changed"]
    return run_id


def _curl(person: Person, url: str, body: dict[str, Any] | None = None) -> Any:
    argv = ["curl", "-sS", "--fail-with-body", "-H", f"Authorization: Bearer {person.token}"]
    argv += ["--cacert", person.ca_file] if person.ca_file else []
    argv += ["-H", "Content-Type: application/json", "-d", "@-"] if body is not None else []
    return json.loads(person.types(*argv, url, typed=json.dumps(body)))


async def _asked(client: mcp.Client, tool: str, **arguments: str) -> dict[str, Any]:
    answer = await client.call_tool(tool, arguments)
    assert answer.structured_content, answer
    found: dict[str, Any] = answer.structured_content
    return found
