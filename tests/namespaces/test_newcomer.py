"""docker/without-containers.md from its first command to a run, on three machines: its own code blocks are what is
typed there."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.namespaces import machines, network
from tests.namespaces.clients import Client, Person, by_curl, by_grpoctl, by_mcp
from tests.namespaces.machines import Machine
from tests.waiting import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.trainer]

PACKAGES = ("nginx-light", "libnginx-mod-stream", "postgresql", "redis-server", "openssl", "iptables")
NAME = "grpo.example.org"
URL = f"https://{NAME}"
HOSTS = ("gpu-1", "gpu-2")
ROOT_PEM = "/etc/grpo/root.pem"
GRPOCTL = (sys.executable, "-m", "controlplane.ctl")
NOTHING_COMES_IN = f"""
iptables -A INPUT -i lo -j ACCEPT
iptables -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT
iptables -A OUTPUT -o lo -j ACCEPT
iptables -A OUTPUT -d {network.CONTROL} -p tcp -m multiport --dports 443,6380 -j ACCEPT
iptables -A OUTPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT
iptables -P INPUT DROP
iptables -P OUTPUT DROP
"""
ROWS = "".join(json.dumps({"question": f"{n} + 1 =", "answer": str(n + 1)}) + "\n" for n in range(64))
REWARDS = "name: sums\ncomponents:\n- function: numeric_match\n"


def blocks(section: str) -> list[str]:
    """The commands of a part of the page, in their order."""
    text = (ROOT / "docker" / "without-containers.md").read_text()
    part = re.split(r"^##+ ", text.partition(f"\n## {section}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    found = re.findall(r"(?:^    .*\n)+", part, re.MULTILINE)
    return [textwrap.dedent(block) for block in found]


@dataclass
class Team:
    control: Machine
    hosts: dict[str, Machine]
    admin: httpx.Client
    token: str

    def api(self, path: str) -> Any:
        return self.admin.get(f"/api/v1/{path}", headers={"Authorization": f"Bearer {self.token}"}).json()

    def person(self, host: str) -> Person:
        """Somebody at that machine, with a token."""
        at = [*self.hosts[host].at, "env", "--chdir=/srv/grpo/app"]
        return Person(at, URL, self.token, ca_file=ROOT_PEM, settings={"SSL_CERT_FILE": ROOT_PEM})

    def logs(self) -> str:
        return "\n".join(machine.logs() for machine in (self.control, *self.hosts.values()))


@pytest.fixture(scope="module")
def team(trainer_python: Path, tiny_model: Path) -> Iterator[Team]:
    if reason := network.missing() or machines.missing(*PACKAGES):
        pytest.skip(reason)
    with ExitStack() as stack:
        net = stack.enter_context(network.of(*HOSTS))
        at_once = stack.enter_context(ThreadPoolExecutor())

        def start(name: str) -> Machine:
            network = net.at(name) if name in HOSTS else []
            return stack.enter_context(machines.machine(name, network, GRPO_TRAINER_PYTHON=str(trainer_python)))

        control, *gpu = at_once.map(start, ("control", *HOSTS))
        *commands, link = blocks("The control plane's machine")
        control.run("\n".join([_know_each_other(), *commands]))
        address = control.run(link).strip()  # while the web starts
        root = control.run("cat /srv/grpo/app/docker/tls/root.pem")
        admin = stack.enter_context(_browser(root))
        wait_until(lambda: admin.get("/readyz").status_code == 200, control.logs)
        _first_admin(admin, address)
        token, codes = _token(admin), [_code(admin, name) for name in HOSTS]
        list(at_once.map(lambda host, code: _join(host, root, code, tiny_model), gpu, codes))
        yield Team(control, dict(zip(HOSTS, gpu, strict=True)), admin, token)


def _know_each_other() -> str:
    return f"echo {network.CONTROL} {NAME} >>/etc/hosts"


def _browser(root: str) -> httpx.Client:
    """It checks the certificate; the name that it is for is checked by the hosts."""
    checked = ssl.create_default_context(cadata=root)
    checked.check_hostname = False
    origin = {"Host": NAME, "Origin": URL, "Referer": f"{URL}/"}
    return httpx.Client(base_url=f"https://{network.CONTROL}", headers=origin, verify=checked, timeout=30)


def _first_admin(client: httpx.Client, link: str) -> None:
    assert link.startswith(f"{URL}/sign-in/once/"), link
    assert client.get(link.removeprefix(URL)).status_code == 302
    form = {"new": "a long password of mine", "again": "a long password of mine"}
    assert _post(client, "/password/set/", form).status_code == 302


def _post(client: httpx.Client, path: str, form: dict[str, str]) -> httpx.Response:
    client.get(path)
    token = next(value for name, value in client.cookies.items() if "csrf" in name)
    return client.post(path, data=form, headers={"X-CSRFToken": token})


def _token(admin: httpx.Client) -> str:
    _post(admin, "/settings/tokens/", {"name": "laptop", "scope": "operate", "days": "30"})
    return re.findall(r"grpo_[\w-]{20,}", admin.get("/settings/tokens/").text)[0]


def _code(admin: httpx.Client, host: str) -> str:
    page = _post(admin, "/hardware/hosts/add/", {"name": host}).text
    return re.findall(rf"workers\.host\.join {URL} (\w+)", page)[0]


def _join(host: Machine, root: str, code: str, model: Path) -> None:
    [commands] = blocks("Each GPU host")
    commands = commands.replace("gpu-1", host.name).replace(" CODE", f" {code}")
    there = f"install -D -m 0644 /dev/stdin {ROOT_PEM}\n{_know_each_other()}\n{NOTHING_COMES_IN}"
    host.run(there, given=root.encode())
    host.run(commands)
    there = "/srv/grpo/host/models/tiny"
    host.run(f"mkdir -p {there} && tar -x -C {there} && chown -R grpo: /srv/grpo/host", given=_tar(model))


def _tar(folder: Path) -> bytes:
    return subprocess.run(["tar", "-c", "-C", folder, "."], capture_output=True, check=True).stdout


@pytest.fixture(scope="module")
def first_run(team: Team) -> str:
    """Somebody at a host has made everything that it needs, watched its first steps, and let it save and stop."""
    person = team.person("gpu-1")
    wait_until(lambda: all("trl" in host["versions"] for host in team.api("hosts")["items"]), team.logs)
    mapped = ("--map", "prompt=question", "--map", "answer=answer")
    team.hosts["gpu-1"].run("cat >/tmp/sums.jsonl", given=ROWS.encode())
    person.types(*GRPOCTL, "datasets", "upload", "/tmp/sums.jsonl", *mapped)
    person.types(*GRPOCTL, "rewards", "create", "-", typed=REWARDS)
    profile = next(item["id"] for item in team.api("profiles")["items"] if item["name"] == "CPU")
    model = "/srv/grpo/host/models/tiny"
    fields = {"dataset_version": 1, "reward_version": 1, "profile": profile, "model": model, "max_steps": 500}
    chosen = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    run_id = person.types(*GRPOCTL, "launch", "--name", "first", *chosen).strip()
    wait_until(lambda: (team.api(f"runs/{run_id}")["step"] or 0) > 1, team.logs)
    person.types(*GRPOCTL, "stop", run_id, "--wait")
    return run_id


def test_both_hosts_are_there_though_they_let_nobody_in(team: Team) -> None:
    wait_until(lambda: [host["name"] for host in team.api("hosts")["items"] if host["in_reach"]] == [*HOSTS], team.logs)
    for number, host in enumerate(team.hosts.values(), start=2):
        assert _refused(host) == 0
        assert _listening(host) == set()
        team.control.run(f"! timeout 1 bash -c '</dev/tcp/10.77.0.{number}/22'")
        assert _refused(host) > 0


@pytest.mark.parametrize("client", [by_curl, by_grpoctl, by_mcp])
async def test_each_client_launches_watches_and_stops_the_run(team: Team, first_run: str, client: Client) -> None:
    run_id = await client(team.person("gpu-2"), first_run)
    wait_until(lambda: team.api(f"runs/{run_id}")["status"] == "stopped", team.logs)
    assert team.api(f"runs/{run_id}/receipts")["items"][-1]["receipt"]["free"]


def test_who_may_come_in_where_and_what_is_encrypted(team: Team) -> None:
    assert _listening(team.control) == {"80", "443", "6380"}
    ask = "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'grpo'"
    assert team.control.run(f'cd /; runuser -u postgres -- psql -qAt -c "{ask}"') == "t\n"
    assert "NOAUTH" in team.control.run("redis-cli ping")


def test_uploads_have_a_limit_of_their_own(team: Team) -> None:
    large = b"x" * (10 << 20)
    assert team.admin.post("/sign-in/", content=large).status_code == 413
    rows = (json.dumps({"question": "1 + 1 =", "answer": "2" * 1000}) + "\n").encode() * 10_000
    headers = {"Authorization": f"Bearer {team.token}"}
    answer = team.admin.post("/api/v1/datasets/upload", headers=headers, files={"file": ("large.jsonl", rows)})
    assert answer.status_code == 201, answer.text


def test_a_backup_brings_everything_back(team: Team) -> None:
    backup, restore = blocks("Backing up the control plane's machine")
    team.control.run(f"cd /root\n{backup}")
    made_later = _post(team.admin, "/settings/tokens/", {"name": "later", "scope": "read", "days": "30"})
    assert made_later.status_code == 302
    team.control.run(f"cd /root\n{restore}")
    wait_until(lambda: team.admin.get("/readyz").status_code == 200, team.logs)
    assert "later" not in team.admin.get("/settings/tokens/").text
    wait_until(lambda: [host["name"] for host in team.api("hosts")["items"] if host["in_reach"]] == [*HOSTS], team.logs)


def _refused(host: Machine) -> int:
    """Packets that wanted in."""
    return int(re.findall(r"policy DROP (\d+) packets", host.run("iptables -vnxL INPUT"))[0])


def _listening(machine: Machine) -> set[str]:
    """Ports that are open beyond the machine itself."""
    addresses = [line.split()[3].rpartition(":") for line in machine.run("ss -Hltn").splitlines()]
    return {port for address, _, port in addresses if not address.startswith(("127.", "[::1"))}
