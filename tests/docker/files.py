"""The files of docker/ as tests read them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import yaml

from controlplane.setup.bootstrap.environments import ROOT

DOCKER = ROOT / "docker"
COMPOSE = (DOCKER / "compose.yaml", DOCKER / "compose.gpu.yaml")
IMAGES = (DOCKER / "web.Dockerfile", DOCKER / "gpu.Dockerfile")
EXAMPLES = (DOCKER / ".env.example", DOCKER / "gpu.env.example")
ENTRY = re.compile(r"^#?([A-Z][A-Z0-9_]+)=", re.MULTILINE)


def compose(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text()))


def names_in(example: Path) -> list[str]:
    """The settings of an example, also those left at their default."""
    return ENTRY.findall(example.read_text())


def set_up(folder: Path) -> Path:
    """A copy of docker/ with settings, as `setup.sh` leaves it."""
    shutil.copytree(DOCKER, folder)
    text = (folder / ".env.example").read_text()
    for name in ("GRPO_DOMAIN", "POSTGRES_PASSWORD", "REDIS_PASSWORD"):
        text = text.replace(f"\n{name}=\n", f"\n{name}=x\n")
    (folder / ".env").write_text(text)
    shutil.copyfile(folder / "gpu.env.example", folder / "gpu.env")
    return folder


def _plain(argument: str) -> str:
    """An argument with its default in place of ${NAME:-default}."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", argument)


SERVICES_COMMANDS = [
    *(
        [_plain(argument) for argument in service["command"]]
        for service in compose(COMPOSE[0])["services"].values()
        if "build" in service
    ),
    ["serve", "web", "--bind", "0.0.0.0"],
]
"""What containers of the control plane start; the last is the image's own."""


def dashboard_expressions() -> list[str]:
    panels = json.loads((DOCKER / "grafana" / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def alert_expressions() -> list[str]:
    groups = yaml.safe_load((DOCKER / "prometheus" / "alerts.yml").read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]
