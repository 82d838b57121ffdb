"""The demo run, and the stage of `manage.py demo` before that run exists, kept in a file in the data folder."""

import json
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from django.conf import settings

from runs.engine.models import Run

NAME = "Demo: arithmetic"
MAX_REPORT_AGE_S = 120.0
"""Maximum time between two reports; an older file was left by a demo that was killed."""


class Stage(StrEnum):
    """Stages of the demo, in order; their values are shown on the page."""

    INSTALL = "Install the trainer"
    DATA = "Create a dataset of sums, and rewards for them"
    MODEL = "Teach a small language model the format of an answer"
    HOST = "Wait for this machine’s worker"
    START = "Start the trainer"


@dataclass(frozen=True)
class DemoPreparing:
    """The stage that the demo is at, before its run exists."""

    stage: Stage
    detail: str = ""
    """Last output line of the running program."""
    since: float = 0.0
    """Start of the stage, in Unix seconds."""


@dataclass(frozen=True)
class DemoStep:
    """A stage as the page shows it."""

    label: str
    tone: str = ""
    """`done` or `now`; "" for a later stage."""
    detail: str = ""
    seconds: int = 0

    @property
    def icon(self) -> str:
        return {"done": "circle-check", "now": "circle-dot"}.get(self.tone, "circle")


def newest_run() -> Run | None:
    return Run.objects.filter(name=NAME).order_by("-created_at").first()


def report(stage: Stage, detail: str = "") -> None:
    previous_report = _read()
    since = previous_report.since if previous_report and previous_report.stage == stage else time.time()
    # Renamed into place, so that a page never reads half of it.
    draft = _file().with_suffix(".new")
    draft.write_text(json.dumps(asdict(DemoPreparing(stage, detail, since))))
    draft.replace(_file())


def finish() -> None:
    _file().unlink(missing_ok=True)


def current_stage() -> DemoPreparing | None:
    """Read the stage of a running demo; return None if no demo has reported recently."""
    try:
        is_fresh = time.time() - _file().stat().st_mtime < MAX_REPORT_AGE_S
    except FileNotFoundError:
        return None
    return _read() if is_fresh else None


def steps(progress: DemoPreparing) -> list[DemoStep]:
    current_index = list(Stage).index(progress.stage)
    seconds = max(1, round(time.time() - progress.since))
    return [
        DemoStep(stage, "now", progress.detail, seconds)
        if stage == progress.stage
        else DemoStep(stage, "done" if index < current_index else "")
        for index, stage in enumerate(Stage)
    ]


def _read() -> DemoPreparing | None:
    try:
        report_values = json.loads(_file().read_text())
        return DemoPreparing(Stage(report_values["stage"]), str(report_values["detail"]), float(report_values["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _file() -> Path:
    return Path(settings.DATA_DIR) / "demo-preparing.json"
