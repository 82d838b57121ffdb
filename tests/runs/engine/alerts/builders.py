"""Targets, and events that they are told of."""

from __future__ import annotations

from typing import Any

from controlplane.platform import sealing
from runs.engine.alerts.forms import mask
from runs.engine.alerts.models import AlertTarget, TargetKind
from runs.engine.records import RunEvent
from tests.runs.builders import an_attempt

ALL = ["bad", "warning", "failed", "succeeded", "stopped"]


def a_target(address: str = "https://hooks.example/services/T0/B0/secret", **columns: Any) -> AlertTarget:
    kind = TargetKind.MAIL if "@" in address else TargetKind.WEBHOOK
    start = {"name": "team", "kind": kind, "wants": ALL, "private_too": True, "links_to": "https://grpo.example/"}
    sealed = {"sealed": sealing.seal(address), "shown": mask(kind, address)}
    return AlertTarget.objects.create(**{**start, **sealed, **columns})


def an_alert(level: str = "bad", state: str = "open", **data: Any) -> RunEvent:
    """As the health rules write one."""
    attempt = an_attempt()
    told = {"rule": "kl_drift", "title": "KL drift", "sentence": "KL is 0.31; the bound is 0.2.", "step": 412}
    told |= {"level": level, "state": state, "value": 0.31, "bound": 0.2, **data}
    return RunEvent.objects.create(run=attempt.run, attempt=attempt, at=attempt.created_at, kind="alert", data=told)
