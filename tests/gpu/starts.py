"""From the click on New run to the first step: cold, with caches, and on a warm server; one run after the other.

Each run is stopped after its first step, and the next one is sent when its receipt is there, so that none waits for
another's GPUs. A warm server is ended on the Hardware page before a run that is to start its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.gpu.installation import Site
from tests.gpu.launches import Launch, Stage
from tests.gpu.results import Entry
from tests.gpu.units import Starts

LOOK_S = 0.2
ENDS_S = 60.0
"""Longest wait for a warm server's receipt."""


class StartError(RuntimeError):
    """A run made no step, or a warm server did not end."""


def measure(
    unit: Starts,
    site: Site,
    profile_of: Callable[[dict[str, Any]], str],
    deadline: float,
    save: Callable[[Entry], None],
) -> Entry:
    """The seconds of each run by its figure; saved after each, since the time may be over before the last.
    `deadline` by time.monotonic()."""
    found: Entry = {"first_steps": []}
    for number, (figure, changes) in enumerate(unit.runs, 1):
        if number > 1 and deadline - time.monotonic() < unit.least_s:
            break
        if not changes.get("server_keep_warm_minutes"):
            found |= _end_servers(site)
        launch = Launch(unit.setup, site, number, 1, unit.setup.limit_s)
        launch.send(profile_of(changes), {**unit.setup.launch, "name": f"{unit.name} {figure}"})
        _follow(launch, deadline)
        found[figure] = round(launch.seen[0].t - launch.begun, 2)
        about = {"figure": figure, "warm_server": _used(launch), "stages": stages(launch)}
        about |= {"step": parts(launch), "kill": launch.kill()}
        found["first_steps"].append(about)
        save({"gpus": unit.setup.gpus, "steps": 1, **found})
    found |= _end_servers(site)
    save({"gpus": unit.setup.gpus, "steps": 1, **found})
    return found


def stages(launch: Launch) -> dict[str, float]:
    """Seconds from the click until each phase and stage that the run page's timeline has."""
    from runs.engine.records import RunEvent

    rows = RunEvent.objects.filter(run_id=launch.run, kind__in=("phase", "stage", "training")).order_by("id")
    named = [(row.data.get("phase") or row.data.get("stage") or row.kind, row.at.timestamp()) for row in rows]
    return {str(name): round(at - launch.begun, 2) for name, at in named if at <= launch.killed_at}


def parts(launch: Launch) -> dict[str, float]:
    """Seconds of the first step and of its parts."""
    values = launch.seen[0].values
    told = {name.removeprefix("time/"): value for name, value in values.items() if name.startswith("time/")}
    return {name: round(value, 2) for name, value in {"step_time": values["step_time"], **told}.items()}


def _follow(launch: Launch, deadline: float) -> None:
    while not launch.over:
        if time.monotonic() > deadline:
            launch.give_up("the sitting's time was over")
            break
        launch.tick(time.time())
        time.sleep(LOOK_S)
    if launch.stage is Stage.FAILED:
        raise StartError(launch.failed)


def _used(launch: Launch) -> str:
    place = (launch.state.placement if launch.state else {}).get("warm")
    return str(place["attempt_id"]) if place else ""


def _end_servers(site: Site) -> Entry:
    """End the warm servers as a person does; their receipts."""
    from runs.engine.models import Attempt
    from runs.engine.states import FINAL

    servers = Attempt.objects.filter(run__kind="warm").exclude(status__in=FINAL)
    ids, begun = list(servers.values_list("pk", flat=True)), time.monotonic()
    if not ids:
        return {}
    for attempt_id in ids:
        site.person.end_server(attempt_id.rpartition("-")[0])
    while servers.exists():
        if time.monotonic() - begun > ENDS_S:
            raise StartError(f"the warm servers {', '.join(ids)} have no receipt after {ENDS_S:.0f} s")
        time.sleep(LOOK_S)
    ended = Attempt.objects.filter(pk__in=ids)
    return {
        "warm_server_ends": [
            {"seconds": round(time.monotonic() - begun, 2), "free": bool((row.receipt or {}).get("free"))}
            for row in ended
        ]
    }
