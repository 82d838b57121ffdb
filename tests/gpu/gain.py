"""What "Use the memory" gives: the guide's batch, and the one that the New run page's button puts in its place."""

from __future__ import annotations

import html
import json
import re
import statistics
import time
from typing import Any

from tests.gpu.figures import settled_seconds, step_seconds
from tests.gpu.installation import Site, tail
from tests.gpu.launches import Launch, Stage
from tests.gpu.pages import form_with
from tests.gpu.person import NEW_RUN
from tests.gpu.results import Entry
from tests.gpu.units import Gain

BUTTON = "Use the memory"
_FIX = re.compile(r'data-fix="([^"]*)"[^>]*>([^<]*)<')


class GainError(RuntimeError):
    """A run failed, or the page offered nothing; the message says why."""


def measure(unit: Gain, site: Site, profile: str) -> Entry:
    """`batch_gain`: steps per second with the button over those without, of the same completions in each step."""
    guide = _run(unit, site, profile, 1, {})
    values = offered(site, {**site.launch_values(profile), **_choices(unit, site, profile)})
    memory = _run(unit, site, profile, 2, values)
    return {
        "batch_gain": round(guide / memory, 3),
        "batch_gain_step_s": [round(guide, 3), round(memory, 3)],
        "batch_gain_values": values,
        "gpus": unit.setup.gpus,
    }


def offered(site: Site, choices: dict[str, Any]) -> dict[str, str]:
    """What the button on the New run page would put into the form."""
    form = form_with(site.person.http.get(NEW_RUN).text, "model", "profile")
    panel = site.person.http.post("/runs/new/check", data=form.filled(choices)).text
    return fix_of(panel)


def fix_of(panel: str) -> dict[str, str]:
    for values, label in _FIX.findall(panel):
        if html.unescape(label).strip().startswith(BUTTON):
            found: dict[str, str] = json.loads(html.unescape(values))
            return found
    raise GainError(f"the page offers no “{BUTTON}”")


def _choices(unit: Gain, site: Site, profile: str) -> dict[str, Any]:
    rows = {"dataset_version": site.dataset, "reward_version": site.rewards, "profile": profile}
    return {**rows, "model": str(site.models / unit.setup.shape)}


def _run(unit: Gain, site: Site, profile: str, number: int, changes: dict[str, str]) -> float:
    """The median step, in seconds, of a run that is stopped after its steps."""
    launch = Launch(unit.setup, site, number, unit.steps, unit.limit_s)
    launch.send(profile, changes)
    while not launch.over:
        launch.tick(time.time())
        time.sleep(0.5)
    if launch.stage is Stage.FAILED:
        raise GainError(f"{launch.failed}\n{tail(site.folder(launch.run) / 'logs/trainer.log', 60)}")
    return statistics.median(settled_seconds(launch.seen) or step_seconds(launch.seen))
