"""Several real processes of one installation that do something at the same instant, on SQLite or PostgreSQL."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from controlplane.platform.database import URL_VARIABLE
from tests import migrated
from tests.stack import Shell

BEFORE = """
import time
from datetime import timedelta
from django.utils import timezone
from controlplane.catalogue.hardware.models import Host
from runs.intake.host_api import claiming, ingest
from controlplane.catalogue.hardware import host_commands
from runs.engine.scheduling import dispatching, ending, launching, stopping
from runs.insight.metrics import folding
from runs.engine import queries
from runs.housekeeping import tick
from runs.engine.models import Attempt, Lease, Run
from runs.engine.records import MetricChunk, MetricRow, RunEvent
from workers.contract.wire.names import EndReason
from runs.engine.states import RunStatus
from tests.runs.builders import *
from workers.contract.reports.lines import Receipt
from workers.contract.wire.names import StopMode
from workers.contract.wire.documents import from_dict

sent = []
host_commands.send = lambda host, task, arguments, *more: sent.append(task.value)
"""
TOGETHER = "\ntime.sleep(max(0.0, at - time.time()))\n"
AHEAD_S = 0.05
"""How long before the instant everybody is told of it."""


class Racers:
    """`racers.alone("...")` prepares and looks; `racers.at_once("...")` answers what each process made of it."""

    def __init__(self, data: Path, url: str = "", count: int = 4) -> None:
        environment = {**os.environ, "CONTROLPLANE_DATA": str(data), "DJANGO_SETTINGS_MODULE": "controlplane.settings"}
        file = data / "controlplane.sqlite3"
        if url:
            environment |= {URL_VARIABLE: url}
        elif not file.exists() and (made := migrated.file()):
            data.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(made, file)
        self._shells = [Shell(environment) for _ in range(count)]
        self._threads = ThreadPoolExecutor(count)
        self.alone("from django.core.management import call_command\ncall_command('migrate', verbosity=0)")
        self.at_once("")  # each has read its code before the first race

    def alone(self, code: str, **names: Any) -> Any:
        return self._shells[0].run(BEFORE + code, names)

    def at_once(self, code: str, each: Sequence[Mapping[str, Any]] = (), **names: Any) -> list[Any]:
        """`each`: what the processes know apart from each other."""
        at = time.time() + AHEAD_S
        apart = list(each) or [{} for _ in self._shells]
        asked = [
            self._threads.submit(shell.run, BEFORE + TOGETHER + code, {"at": at, **names, **mine})
            for shell, mine in zip(self._shells, apart, strict=True)
        ]
        return [each.result() for each in asked]

    def close(self) -> None:
        self._threads.shutdown()
        for shell in self._shells:
            shell.stop()
