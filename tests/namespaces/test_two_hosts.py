"""A control plane and two hosts on a network of their own, with PostgreSQL and Redis: joined, cut off, restarted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from controlplane.setup.serving.processes import Fleet
from tests.browser.tiny_folder import write_model
from tests.controlplane.catalogue.joining import shared_redis
from tests.fakes.fake_gpus import Gpus
from tests.faults import invariants
from tests.faults.harness import CPU, FAKES, LAUNCH, PREPARE, SCALED, ARun, Product
from tests.namespaces import network
from tests.namespaces.clients import Client, Person, by_curl, by_grpoctl, by_mcp
from tests.postgres import Postgres
from tests.postgres import missing as no_postgres
from tests.stack import Stack, command_of
from tests.workers.host.test_host_on_the_stack import a_model
from tests.workers.host.test_second_host import CODE, SEEN

pytestmark = pytest.mark.processes

CUT_OFF_S = float(os.environ.get("CUT_OFF_S", "0"))
"""How long a host stays cut off beyond what it takes to notice: `CUT_OFF_S=60` for a minute."""
REVOKE = """
from controlplane.platform.accounts.models import User
from controlplane.catalogue.hardware.models import Host
from runs.engine.hosts import actions
result = actions.revoke(Host.objects.get(name=host), User.objects.get(username="admin"))
"""
TOKEN = """
import uuid
from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import User
user = User.objects.get(username="operator")
result = api_tokens.make(user, "there " + uuid.uuid4().hex[:6], "operate", days=1)[1]
"""
TRAINER = """
from controlplane.catalogue.hardware.models import Host
seen = Host.objects.get(name=host).inventory
result = seen.get("trainer") == "ready" and any(model.endswith("/tiny") for model in seen["models"])
"""


@dataclass
class Machine:
    """A host that has joined by a code."""

    name: str
    folder: Path
    net: network.Network
    joining: list[str]
    trainer_python: str = sys.executable
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.model = a_model(self.folder / "models" / "small")
        self.start(*self.joining)

    def start(self, *joining: str) -> None:
        trainer = command_of(FAKES / "fake_trainer.py", FAKE_TRAINER="pause:0.05", FAKE_TRAINER_LIFETIME="300")
        own = {"GRPO_TRAINER_PYTHON": self.trainer_python, "GRPO_TRAINER_COMMAND": trainer}
        scaled = {name: value for name, value in SCALED.items() if name.startswith("GRPO_")}
        scaled["GRPO_REFUSED_DEADLINE_S"] = "1"
        argv = [*self.net.at(self.name), sys.executable, "-m", "workers.host.join", *joining, "--data"]
        with (self.folder / "join.log").open("ab") as log:
            environment = {name: value for name, value in os.environ.items() if name != "CONTROLPLANE_DATA"}
            self.process = subprocess.Popen(
                [*argv, str(self.folder)], cwd=ROOT, env={**environment, **scaled, **own}, stdout=log, stderr=log
            )

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


class RunThere(ARun):
    """A run on one of them."""

    machine: Machine

    @property
    def folder(self) -> Path:
        return self.machine.folder / "runs" / self.run / str(self.number)


@dataclass
class Site:
    product: Product
    net: network.Network
    machines: dict[str, Machine]
    postgres: Postgres
    redis: Fleet

    def launch(self, host: str) -> RunThere:
        """It trains until its gate is opened."""
        names = {"hardware": CPU, "name": f"on {host} #trainer=gate", "model": str(self.machines[host].model)}
        code = LAUNCH.replace('"testhost"', f'"{host}"')
        run = self.product.stack.django(code, **names, steps=5, resumes=0, user="operator", just_heard=False)
        made = RunThere(self.product, run)
        made.machine = self.machines[host]
        self.product.runs.append(made)
        made.until_step(3)
        return made

    def person(self, host: str) -> Person:
        token = self.product.stack.django(TOKEN)
        return Person(self.net.at(host), self.product.stack.url, token, settings={"GRPOCTL_INSECURE": "1"})

    def restart(self, part: str) -> None:
        if part == "postgres":
            self.postgres.stop()
            self.postgres.start()
        elif part == "redis":
            program = self.redis.programs()["redis"]
            self.redis.stop(["redis"])
            self.redis.start(program)
            self.redis.wait_ready(["redis"])
        elif part in self.machines:
            self.machines[part].stop()
            self.machines[part].start()
        else:
            self.product.kill(part)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    if reason := network.missing() or no_postgres():
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="gt-"))
    with network.of("one", "two") as net:
        postgres, stack, machines = Postgres.create(), None, {}
        fleet = Fleet(report=print)
        try:
            stack = _control_plane(folder, postgres, fleet)
            product = Product(stack, Gpus.make(folder / "gpus", 0), folder)
            stack.django(PREPARE)
            for name in ("one", "two"):
                (folder / name).mkdir()
                code = stack.django(CODE)
                machines[name] = Machine(name, folder / name, net, [stack.url, code, "--name", name, "--plaintext"])
            product.until(
                lambda: {"one", "two"} <= set(stack.django(SEEN)),
                lambda: "\n".join((folder / name / "join.log").read_text() for name in machines),
            )
            yield Site(product, net, machines, postgres, fleet)
            product.end_all()
        finally:
            for machine in machines.values():
                machine.stop()
            if stack is not None:
                stack.stop()
            fleet.stop()
            postgres.remove()
            shutil.rmtree(folder, ignore_errors=True)


def _control_plane(folder: Path, postgres: Postgres, fleet: Fleet) -> Stack:
    redis, url = shared_redis.program(folder)
    everywhere = ["0.0.0.0" if word == "127.0.0.1" else word for word in redis.argv]
    fleet.first_backoff_s, fleet.steady_after_s = 0.2, 0.0
    fleet.start(replace(redis, argv=everywhere))
    fleet.wait_ready(["redis"])
    settings = {
        **SCALED,
        "CONTROLPLANE_DATABASE_URL": postgres.url("controlplane"),
        "CONTROLPLANE_HOST_REDIS_URL": f"redis://{network.CONTROL}:{url.rpartition(':')[2]}",
        "CONTROLPLANE_PLAINTEXT": "allow",
    }
    stack = Stack.start(Path(tempfile.mkdtemp(prefix="gt-")), settings, redis_url=url, bind=network.CONTROL)
    stack.fleet.first_backoff_s, stack.fleet.steady_after_s = 0.2, 0.0
    return stack


def test_a_host_that_is_cut_off_trains_on_and_reports_afterwards(site: Site) -> None:
    cut, other = site.launch("one"), site.launch("two")
    site.net.cut("one")
    since = time.monotonic()
    cut.until(lambda seen: seen["out_of_reach"])
    assert cut.look()["status"] == "running"
    site.product.until(lambda: time.monotonic() > since + CUT_OFF_S, "never", limit_s=CUT_OFF_S + 60)
    other.open_gate("trainer")
    invariants.check(other, status="succeeded", reason="completed")
    cut.open_gate("trainer")  # it ends while nobody hears of it
    site.product.until(lambda: any(line["kind"] == "ended" for line in cut.outbox()), cut.why)
    site.net.heal("one")
    invariants.check(cut, status="succeeded", reason="completed")


def test_runs_outlive_a_restart_of_each_part(site: Site) -> None:
    runs = [site.launch("one"), site.launch("two")]
    for part in ("web", "control", "postgres", "redis", "one"):
        site.restart(part)
        for run in runs:
            run.until_step(run.look()["step"] + 2)
    for run in runs:
        run.open_gate("trainer")
        invariants.check(run, status="succeeded", reason="completed")


@pytest.fixture(scope="module")
def checked(site: Site, trainer_python: Path) -> None:
    """Preflight finds a trainer and a model on host one: those who launch by the API don't get around it."""
    machine = site.machines["one"]
    machine.model = machine.folder / "models" / "tiny"
    write_model(machine.model)
    machine.trainer_python = str(trainer_python)
    site.restart("one")
    ready = partial(site.product.stack.django, TRAINER, host="one")
    site.product.until(ready, (machine.folder / "join.log").read_text)


@pytest.mark.trainer
@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("client", [by_curl, by_grpoctl, by_mcp])
async def test_each_client_launches_watches_and_stops_a_run_from_another_machine(site: Site, client: Client) -> None:
    first = site.launch("one")
    again = RunThere(site.product, await client(site.person("one"), first.run))
    again.machine = first.machine
    site.product.runs.append(again)
    invariants.check(again, status="stopped", reason="stopped_by_user")
    first.open_gate("trainer")
    invariants.check(first, status="succeeded", reason="completed")


def test_a_host_that_is_cut_off_for_good_is_revoked_and_does_no_more(site: Site) -> None:
    lost, other = site.launch("two"), site.launch("one")
    site.net.cut("two")
    lost.until(lambda seen: seen["out_of_reach"])
    assert site.product.stack.django(REVOKE, host="two") == [1, ""]
    assert lost.look()["reason"] == "host_lost"
    other.open_gate("trainer")
    invariants.check(other, status="succeeded", reason="completed")
    site.net.heal("two")  # were it ever to come back
    invariants.check(lost, status="failed", reason="host_lost", leases="quarantined", complete=False)
