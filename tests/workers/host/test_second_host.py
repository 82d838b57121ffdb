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

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from controlplane.setup.serving.processes import Fleet
from tests.controlplane.catalogue.joining import shared_redis
from tests.fakes.object_store import BUCKET, object_store
from tests.stack import FAKE_TRAINER, Stack, command_of
from tests.waiting import wait_until
from tests.workers.host.test_host_on_the_stack import HOST, LOOK, STOP, SUBMIT, a_model
from workers.supervisor.processes.folder import AttemptFolder, Lock

pytestmark = pytest.mark.processes

TRAINER = command_of(FAKE_TRAINER, FAKE_TRAINER="pause:0.05,whole")
CODE = "from controlplane.catalogue.joining import codes\nresult = codes.create('', by=None)[1]"
SEEN = """
from controlplane.catalogue.hardware.models import Host
result = list(Host.objects.exclude(announced_at=None).values_list("name", flat=True))
"""
REVOKE = """
from controlplane.catalogue.hardware.models import Host
from runs.engine.hosts import actions
from tests.runs import builders
result = actions.revoke(Host.objects.get(name="second"), builders.a_user())
"""
TOKENS = """
from controlplane.platform.http.tokens import attempt_token
from runs.engine.models import Attempt
attempt = Attempt.objects.get(run_id=run).pk
result = attempt, attempt_token(attempt)
"""


STORE = """
from controlplane.catalogue.hardware.models import Host
from tests.controlplane.platform.accounts.secret_rows import a_store
a_store(address, "id:secret")
Host.objects.filter(name="testhost").update(draining=True)
"""
UNDRAIN = """
from controlplane.catalogue.hardware.models import Host
Host.objects.filter(name="testhost").update(draining=False)
"""
ATTEMPTS = """
from runs.engine.models import Attempt
rows = Attempt.objects.filter(run_id=run).order_by("number")
result = [{"status": row.status, "reason": row.reason, "host": row.host and row.host.name, "from": row.resume_from,
           "detail": row.detail} for row in rows]
"""
ANYWHERE = f"from workers.contract.run.spec import RecoverySpec\n{SUBMIT}".replace(
    'Host.objects.get(name="testhost")', "None"
).replace('grpo={"max_steps": steps}', 'grpo={"max_steps": steps}, recovery=RecoverySpec(0, 1)')
STOP_LAST = STOP.replace("Attempt.objects.get(run_id=run)", "Attempt.objects.filter(run_id=run).order_by('-number')[0]")


class Second:
    """The machine that joins."""

    def __init__(self, stack: Stack, folder: Path, **more: str) -> None:
        self.folder = folder
        own = {
            "GRPO_TRAINER_PYTHON": sys.executable,
            "GRPO_TRAINER_COMMAND": TRAINER,
            "GRPO_REFUSED_DEADLINE_S": "1",
            **more,
        }
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
        settings = {"CONTROLPLANE_HOST_REDIS_URL": url, "GRPO_TRAINER_COMMAND": TRAINER}
        made = Stack.start(Path(tempfile.mkdtemp(prefix="gt-")), settings, redis_url=url)
        yield made
        made.stop()
        fleet.stop()


@pytest.mark.telling
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


def test_a_preempted_machines_last_checkpoint_is_uploaded_and_the_run_goes_on_elsewhere(
    stack: Stack, tmp_path: Path
) -> None:
    taken_back = {
        "GRPO_AT_STOP": "save",
        "GRPO_STOP_REASON": "host_preempted",
        "GRPO_STOP_NOTICE_S": "90",
        "GRPO_LEAVE_AFTER_S": "600",
        "GRPO_MODEL_ROOTS": str(stack.installation.models_dir),
    }
    second = Second(stack, tmp_path, **taken_back)
    with object_store() as bucket:
        try:
            wait_until(lambda: stack.django(HOST))
            stack.django(STORE, address=f"{bucket.store.endpoint}/{BUCKET}/team?region=us-east-1")
            wait_until(lambda: "second" in stack.django(SEEN))
            model = str(a_model(stack.installation.models_dir / "small"))
            run = stack.django(ANYWHERE, model=model, steps=100_000)
            wait_until(lambda: stack.django(LOOK, run=run)["rows"] >= 2, lambda: str(stack.django(ATTEMPTS, run=run)))
            stack.django(UNDRAIN)
        finally:
            second.stop()
        wait_until(lambda: len(rows := stack.django(ATTEMPTS, run=run)) == 2 and rows[1]["status"] == "running")
        first, again = stack.django(ATTEMPTS, run=run)
        assert (first["host"], first["reason"], again["host"]) == ("second", "host_preempted", "testhost")
        saved = tmp_path / "host" / "runs" / again["from"]
        [newest] = saved.parent.iterdir()
        fetched = stack.runs_dir / again["from"]
        assert saved == newest
        assert {path.name: path.read_bytes() for path in fetched.iterdir()} == {
            path.name: path.read_bytes() for path in saved.iterdir()
        }
        stack.django(STOP_LAST, run=run, mode="now")


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
