"""docker/README.md from its first command to a run, on three machines: its own code blocks are what is typed there."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.namespaces import machines, network
from tests.namespaces.machines import Machine
from tests.stack import ROOT
from tests.workers.supervisor.attempts import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.trainer, pytest.mark.timeout(600)]

PACKAGES = ("nginx-light", "libnginx-mod-stream", "postgresql", "redis-server", "openssl", "iptables")
NAME = "grpo.example.org"
URL = f"https://{NAME}"
HOSTS = ("gpu-1", "gpu-2")
NOTHING_COMES_IN = f"""
iptables -A INPUT -i lo -j ACCEPT
iptables -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT
iptables -A OUTPUT -o lo -j ACCEPT
iptables -A OUTPUT -d {network.CONTROL} -p tcp -m multiport --dports 443,6380 -j ACCEPT
iptables -A OUTPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT
iptables -P INPUT DROP
iptables -P OUTPUT DROP
"""
PROMPTS = "\n".join(json.dumps({"question": f"{n} + 1 =", "answer": str(n + 1)}) for n in range(64))
REWARDS = """
name: answers
components:
  - name: answer
    function: numeric_match
"""


def typed(section: str) -> str:
    """The commands of a part of the page, in their order."""
    text = (ROOT / "docker" / "README.md").read_text()
    part = re.split(r"^##+ ", text.partition(f"\n### {section}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return "".join(f"{line[4:]}\n" for line in part.splitlines() if line.startswith("    "))


@dataclass
class Team:
    control: Machine
    hosts: dict[str, Machine]
    admin: httpx.Client
    token: str

    def api(self, path: str) -> Any:
        return self.admin.get(f"/api/v1/{path}", headers={"Authorization": f"Bearer {self.token}"}).json()

    def logs(self) -> str:
        return "\n".join(machine.logs() for machine in (self.control, *self.hosts.values()))


@pytest.fixture(scope="module")
def team(trainer_python: Path, tiny_model: Path) -> Iterator[Team]:
    if reason := network.missing() or machines.missing(*PACKAGES):
        pytest.skip(reason)
    with ExitStack() as stack:
        net = stack.enter_context(network.of(*HOSTS))
        settings = {"GRPO_TRAINER_PYTHON": str(trainer_python)}
        control = stack.enter_context(machines.machine("control", [], **settings))
        *commands, link = typed("The control plane's machine").strip().splitlines()
        control.run("\n".join([_know_each_other(), *commands]))
        root = control.run("cat /srv/grpo/app/docker/tls/root.pem")
        admin = stack.enter_context(_browser(root))
        wait_until(lambda: admin.get("/readyz").status_code == 200, control.logs)
        _first_admin(admin, control.run(link).strip())
        token = _token(admin)
        hosts = {}
        for name in HOSTS:
            hosts[name] = stack.enter_context(machines.machine(name, net.at(name), **settings))
            _join(hosts[name], root, _code(admin, name), tiny_model)
        yield Team(control, hosts, admin, token)


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
    page = _post(admin, "/settings/tokens/", {"name": "laptop", "scope": "operate", "days": "30"})
    return re.findall(r"grpo_[\w-]{20,}", page.text)[0]


def _code(admin: httpx.Client, host: str) -> str:
    page = _post(admin, "/hardware/hosts/add/", {"name": host}).text
    return re.findall(rf"workers\.host\.join {URL} (\w+)", page)[0]


def _join(host: Machine, root: str, code: str, model: Path) -> None:
    commands = typed("Each GPU host").replace("gpu-1", host.name).replace(" CODE", f" {code}")
    there = f"install -D -m 0644 /dev/stdin /etc/grpo/root.pem\n{_know_each_other()}\n{NOTHING_COMES_IN}"
    host.run(there, given=root.encode())
    host.run(commands)
    there = "/srv/grpo/host/models/tiny"
    host.run(f"mkdir -p {there} && tar -x -C {there} && chown -R grpo: /srv/grpo/host", given=_tar(model))


def _tar(folder: Path) -> bytes:
    return subprocess.run(["tar", "-c", "-C", folder, "."], capture_output=True, check=True).stdout


def test_both_hosts_are_there(team: Team) -> None:
    wait_until(lambda: [host["name"] for host in team.api("hosts")["items"] if host["in_reach"]] == [*HOSTS], team.logs)
