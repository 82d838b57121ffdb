"""Warm servers as the Hardware page shows them (resources, users, idle times), and the view that ends one."""

from dataclasses import dataclass
from datetime import datetime

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.templatetags.figures import NO_VALUE, ago, clock
from runs.engine import queries
from runs.engine.models import Attempt, Run
from runs.engine.sentences import placement_text
from runs.engine.states import ACTIVE, RunStatus
from runs.engine.warm import lifecycle
from runs.engine.warm.models import WarmServer


@dataclass(frozen=True)
class WarmLine:
    """A warm server that is starting, running or ending, as a line of the table."""

    row: WarmServer

    @property
    def attempt(self) -> Attempt:
        return self.row.attempt

    @property
    def run(self) -> Run:
        return self.attempt.run

    @property
    def model(self) -> str:
        return str(self.run.spec["model"]["path"])

    @property
    def where(self) -> str:
        return placement_text(self.attempt)

    @property
    def user(self) -> Run | None:
        """The run that uses the server."""
        return self.row.used_by.run if self.row.used_by else None

    @property
    def state(self) -> str:
        """The server's state: `starting`, `in use`, `idle` or `ending`."""
        if self.attempt.status == RunStatus.STOPPING or self.attempt.stop_mode or (self.row.leaving and not self.user):
            return "ending"
        if self.attempt.status == RunStatus.STARTING:
            return "starting"
        return "in use" if self.user else "idle"

    @property
    def chip(self) -> str:
        return {"starting": "starting", "in use": "running", "idle": "queued", "ending": "stopping"}[self.state]

    @property
    def stops_at(self) -> datetime | None:
        """The time at which the server ends unless a run uses it first."""
        return self.row.stops_at if self.can_end and not self.user else None

    @property
    def idle(self) -> str:
        """The time for which no run has used the server."""
        return ago(self.row.idle_since) if self.stops_at else NO_VALUE

    @property
    def ends(self) -> str:
        if self.stops_at:
            return clock(self.stops_at)
        return "after the run" if self.user and self.row.leaving else NO_VALUE

    @property
    def end_act(self) -> str:
        return "End after the run" if self.user else "End"

    @property
    def can_end(self) -> bool:
        return not self.row.leaving and self.state != "ending"


def lines() -> list[WarmLine]:
    return [WarmLine(row) for row in _rows().order_by("attempt__dispatched_at")]


def line_of(run: Run) -> WarmLine | None:
    """Find the warm server of a run; return None if the run isn't of kind `warm` or has ended."""
    row = _rows().filter(attempt__run=run).first()
    return WarmLine(row) if row else None


def server_of(attempt: Attempt) -> Run | None:
    """Find the run of the warm server that an attempt uses or used; return None if there is none."""
    server = (attempt.placement or {}).get("warm")
    return Run.objects.filter(attempts=server["attempt_id"]).first() if server else None


def _rows() -> QuerySet[WarmServer]:
    rows = WarmServer.objects.filter(attempt__status__in=ACTIVE)
    return rows.select_related("attempt__run__owner", "attempt__host", "used_by__run")


@require_POST
@operator_required
def end(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """End a warm server: at once if it is idle, otherwise after the run that uses it."""
    run = queries.run_for(request, run_id)
    line = line_of(run)
    if line is None:
        messages.info(request, f"{run.name} isn't a warm server or has already ended.")
    elif not lifecycle.end(line.row, person(request)):
        messages.info(request, f"{run.name} is already ending.")
    elif line.user:
        messages.success(request, f"{run.name} will end once {line.user.name} has ended.")
    else:
        messages.success(request, f"{run.name} is ending.")
    return redirect("hardware")
