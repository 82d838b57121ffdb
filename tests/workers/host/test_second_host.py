"""A second host beside the real control plane: it joins over HTTP, runs, is revoked, and can do nothing more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from controlplane.serving.processes import Fleet
from tests.controlplane.joining import shared_redis
from tests.stack import ROOT, Stack, command_of
from tests.workers.host.test_host_on_the_stack import LOOK, SUBMIT, a_model
from tests.workers.supervisor.attempts import wait_until
from workers.supervisor.folder import AttemptFolder, Lock

pytestmark = pytest.mark.processes

CODE = "from controlplane.joining import codes\nresult = codes.make('', by=None)[1]"
SEEN = """
from controlplane.hardware.models import Host
result = list(Host.objects.exclude(announced_at=None).values_list("name", flat=True))
"""
REVOKE = """
from controlplane.hardware.models import Host
from runs.hosts import actions
from tests.runs import builders
result = actions.revoke(Host.objects.get(name="second"), builders.a_user())
"""
TOKENS = """
from controlplane.http.tokens import attempt_token
from runs.models import Attempt
attempt = Attempt.objects.get(run_id=run).pk
result = attempt, attempt_token(attempt)
"""


class Second:
    """The machine that joins."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.folder = folder
        trainer = command_of(ROOT / "tests" / "fakes" / "fake_trainer.py")
        own = {"GRPO_TRAINER_PYTHON": sys.executable, "GRPO_TRAINER_COMMAND": trainer, "GRPO_REFUSED_DEADLINE_S": "1"}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CONTROLPLANE_DATA")}
        argv = [sys.executable, "-m", "workers.host.join", stack.url, stack.django(CODE), "--name", "second"]
        self._log = (folder / "join.log").open("wb")
        self.process = subprocess.Popen(
            [*argv, "--data", str(folder / "host")],
            cwd=ROOT,
            env={**environment, **own},
            stdout=self._log,
            stderr=self._log,
        )

    @property
    def kept(self) -> dict[str, Any]:
        kept: dict[str, Any] = json.loads((self.folder / "host" / "host.json").read_text())
        return kept

    def stop(self) -> str:
        self.process.terminate()
        self.process.wait(30)
        self._log.close()
        return (self.folder / "join.log").read_text()


@pytest.fixture
def stack() -> Iterator[Stack]:
    fleet = Fleet(report=print)
    with tempfile.TemporaryDirectory(prefix="gt-") as folder:
        program, url = shared_redis.program(Path(folder))
        fleet.start(program)
        fleet.wait_ready(["redis"])
        made = Stack.start(Path(tempfile.mkdtemp(prefix="gt-")), {"CONTROLPLANE_HOST_REDIS_URL": url}, redis_url=url)
        yield made
        made.stop()
        fleet.stop()


def test_a_second_host_joins_runs_is_revoked_and_can_do_nothing_more(stack: Stack, tmp_path: Path) -> None:
    second = Second(stack, tmp_path)
    try:
        wait_until(lambda: "second" in stack.django(SEEN))
        submit = SUBMIT.replace('"testhost"', '"second"')
        run = stack.django(submit, model=str(a_model(tmp_path / "host" / "models" / "small")), steps=10_000)
        wait_until(lambda: stack.django(LOOK, run=run)["rows"] >= 2)
        [folder] = (tmp_path / "host" / "runs").glob(f"{run}/*")
        assert stack.django(REVOKE) == [1, ""]
        assert stack.django(LOOK, run=run)["reason"] == "host_lost"
        wait_until(lambda: '"ended"' in (folder / "outbox.jsonl").read_text())  # its processes are gone
        assert refused(stack, second, run) == [403, 403, "no connection to Redis"]
        wait_until(lambda: not Lock(AttemptFolder.of(folder.parents[1], run, int(folder.name))).is_held())
    finally:
        said = second.stop()
    assert "The credentials of second were revoked." in said


def refused(stack: Stack, second: Second, run: str) -> list[Any]:
    attempt, token = stack.django(TOKENS, run=run)
    announced = {"name": "second", "inventory": {}, "trainer_schema": None}
    host_token = (second.folder / "host" / "host_token").read_text()
    answers = [
        httpx.post(f"{stack.url}{path}", json=body, headers={"Authorization": f"Bearer {bearer}"}).status_code
        for path, body, bearer in (
            ("/api/hosts/announce", announced, host_token),
            (f"/api/attempts/{attempt}/sync", {"lines": []}, token),
        )
    ]
    try:
        redis.Redis.from_url(second.kept["redis_url"]).ping()
    except redis.AuthenticationError:
        return [*answers, "no connection to Redis"]
    return [*answers, "Redis answers"]
