"""Sources of machines, and the requests for machines."""

from dataclasses import fields
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q

from controlplane.catalogue.hardware.prices import Money
from runs.engine.machines import slurm
from runs.engine.machines.provider import EngineKind, MachineShape
from runs.engine.machines.skypilot import provider as skypilot

KINDS: dict[str, EngineKind] = {kind.name: kind for kind in (slurm.KIND, skypilot.KIND)}
"""The kinds of engines that machines come from, by name."""


class MachineSource(models.Model):
    """An engine with its settings, and the one shape of machine that is requested from it."""

    name = models.CharField(max_length=40, unique=True)
    """Also the beginning of its hosts' names."""
    kind = models.CharField(max_length=16)
    """A key of KINDS; another version may know others."""
    options: "models.JSONField[dict[str, str], dict[str, str]]" = models.JSONField(default=dict)
    control_url = models.CharField(max_length=300)
    """The control plane's address, as its machines reach it."""
    most = models.IntegerField(default=1)
    """Machines at the same time."""
    idle_minutes = models.IntegerField(default=10)
    """A machine without a run leaves after this time."""
    patience_minutes = models.IntegerField(default=5)
    """The time that a run waits for a busy host before it requests a machine."""
    gpus = models.IntegerField(default=1)
    gpu_kind = models.CharField(max_length=40, blank=True)
    gpu_memory_gib = models.IntegerField(default=0)
    """Memory of each GPU, for people; 0: not stated."""
    cpus = models.IntegerField(default=8)
    memory_gib = models.IntegerField(default=0)
    minutes = models.IntegerField(default=24 * 60)
    """The longest life of a machine."""
    enabled = models.BooleanField(default=True)
    """Machines are requested; existing ones are managed in any case."""
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    changed_at = models.DateTimeField(auto_now=True)
    """Failures before this time don't count."""

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def shape(self) -> MachineShape:
        return MachineShape(**{field.name: getattr(self, field.name) for field in fields(MachineShape)})

    @property
    def gpu_hour(self) -> Money | None:
        """The price of a GPU-hour of its machines; None if unknown."""
        usd = KINDS[self.kind].gpu_hour_usd(self.options) if self.kind in KINDS else None
        return None if usd is None else Money(float(usd), "$")

    def inventory(self) -> dict[str, Any]:
        """Build the announcement of one of its machines, as far as scheduling needs it."""
        memory = self.gpu_memory_gib * 1024
        return {
            "gpus": [{"index": i, "memory_mib": memory, "used_mib": 0} for i in range(self.gpus)],
            "cpu_slots": self.shape.cpu_slots,
            "sandbox": {"backend": "assumed", "tried": {}},
        }


class MachineRequest(models.Model):
    """One machine, from the request to its end."""

    class State(models.TextChoices):
        ASKING = "asking", "asking"
        """The engine has not answered."""
        WAITING = "waiting", "waiting"
        """The engine has accepted the request; `phase` says how far it is."""
        JOINED = "joined", "joined"
        LEFT = "left", "left"
        """It joined, and its host left."""
        RELEASED = "released", "released"
        """Withdrawn before it joined."""
        FAILED = "failed", "failed"
        """It ended without having joined."""
        LOST = "lost", "lost"
        """It joined, and ended without leaving."""

    source = models.ForeignKey(MachineSource, on_delete=models.PROTECT, related_name="requests")
    attempt = models.ForeignKey("runs.Attempt", null=True, on_delete=models.SET_NULL, related_name="+")
    """The attempt that it was requested for; others may use it."""
    offers: "models.JSONField[dict[str, Any], dict[str, Any]]" = models.JSONField(default=dict)
    """The source's inventory at the time of the request; the source may have changed since."""
    host_name = models.CharField(max_length=64, unique=True)
    code = models.ForeignKey("joining.JoinCode", null=True, on_delete=models.SET_NULL, related_name="+")
    handle = models.CharField(max_length=200, blank=True)
    """The engine's name for it; empty until the engine answers."""
    state = models.CharField(max_length=10, choices=State.choices, default=State.ASKING)
    phase = models.CharField(max_length=10, blank=True)
    """The MachinePhase that the engine reported last."""
    sentence = models.TextField(blank=True)
    """The engine's last report for people, or why the machine ended."""
    created_at = models.DateTimeField(auto_now_add=True)
    looked_at = models.DateTimeField(null=True)
    joined_at = models.DateTimeField(null=True)
    released_at = models.DateTimeField(null=True)
    released_by = models.CharField(max_length=150, blank=True)
    """A user's name; empty: released because no run needed it."""
    ended_at = models.DateTimeField(null=True)

    PENDING = (State.ASKING, State.WAITING)
    LIVE = (*PENDING, State.JOINED)

    class Meta:
        ordering = ("-created_at", "-pk")
        constraints = [
            models.UniqueConstraint(
                fields=["attempt"], condition=Q(state__in=("asking", "waiting")), name="one_machine_asked_for"
            )
        ]
        indexes = [models.Index(fields=["state"], name="machine_state")]

    def __str__(self) -> str:
        return self.host_name


class Expectation(models.Model):
    """A queued attempt's prospects of a machine, in sentences; written only by the tick."""

    attempt = models.OneToOneField("runs.Attempt", on_delete=models.CASCADE, primary_key=True, related_name="machine")
    text = models.TextField()
