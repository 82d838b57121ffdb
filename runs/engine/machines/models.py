"""Sources of machines, and the machines asked of them."""

from __future__ import annotations

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
    """An engine with its settings, and the one shape of machine that is asked of it."""

    name = models.CharField(max_length=40, unique=True)
    """Also how the names of its hosts begin."""
    kind = models.CharField(max_length=16)
    """A key of KINDS; another version may know others."""
    options: models.JSONField[dict[str, str], dict[str, str]] = models.JSONField(default=dict)
    control_url = models.CharField(max_length=300)
    """The control plane's address, as its machines reach it."""
    most = models.IntegerField(default=1)
    """Machines at the same time."""
    idle_minutes = models.IntegerField(default=10)
    """A machine without a run leaves after so long."""
    patience_minutes = models.IntegerField(default=5)
    """How long a run waits for a host that only has to become free, before it asks for a machine."""
    gpus = models.IntegerField(default=1)
    gpu_kind = models.CharField(max_length=40, blank=True)
    gpu_memory_gib = models.IntegerField(default=0)
    """Of each GPU, for people; 0: not said."""
    cpus = models.IntegerField(default=8)
    memory_gib = models.IntegerField(default=0)
    minutes = models.IntegerField(default=24 * 60)
    """The longest life of a machine."""
    enabled = models.BooleanField(default=True)
    """Machines are asked for; those that are there are looked after in any case."""
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    changed_at = models.DateTimeField(auto_now=True)
    """Saving it forgives earlier failures."""

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def shape(self) -> MachineShape:
        return MachineShape(
            gpus=self.gpus,
            cpus=self.cpus,
            minutes=self.minutes,
            idle_minutes=self.idle_minutes,
            memory_gib=self.memory_gib,
            gpu_kind=self.gpu_kind,
            options=self.options,
        )

    @property
    def gpu_hour(self) -> Money | None:
        """The price of a GPU-hour of its machines; None: it is not known."""
        usd = KINDS[self.kind].gpu_hour_usd(self.options) if self.kind in KINDS else None
        return None if usd is None else Money(float(usd), "$")

    def inventory(self) -> dict[str, Any]:
        """What a machine of it will announce, as far as it decides whether a run fits."""
        memory = self.gpu_memory_gib * 1024
        return {
            "gpus": [{"index": i, "memory_mib": memory, "used_mib": 0} for i in range(self.gpus)],
            "cpu_slots": self.shape.cpu_slots,
            "sandbox": {"backend": "assumed", "tried": {}},
        }


class MachineRequest(models.Model):
    """One machine, from the wish to its end."""

    class State(models.TextChoices):
        ASKING = "asking", "asking"
        """The engine has not answered."""
        WAITING = "waiting", "waiting"
        """The engine has it: see `phase`."""
        JOINED = "joined", "joined"
        LEFT = "left", "left"
        """It joined, and left by itself."""
        RELEASED = "released", "released"
        """Taken back before it joined."""
        FAILED = "failed", "failed"
        """It ended without having joined."""
        LOST = "lost", "lost"
        """It joined, and ended without leaving."""

    source = models.ForeignKey(MachineSource, on_delete=models.PROTECT, related_name="requests")
    attempt = models.ForeignKey("runs.Attempt", null=True, on_delete=models.SET_NULL, related_name="+")
    """The one that it is asked for; others may use it."""
    offers: models.JSONField[dict[str, Any], dict[str, Any]] = models.JSONField(default=dict)
    """The source's inventory when it was asked: the source may be changed meanwhile."""
    host_name = models.CharField(max_length=64, unique=True)
    code = models.ForeignKey("joining.JoinCode", null=True, on_delete=models.SET_NULL, related_name="+")
    handle = models.CharField(max_length=200, blank=True)
    """The engine's name for it; "": the engine has not answered."""
    state = models.CharField(max_length=10, choices=State.choices, default=State.ASKING)
    phase = models.CharField(max_length=10, blank=True)
    """As the engine said last."""
    sentence = models.TextField(blank=True)
    """What the engine said last, or why it ended."""
    created_at = models.DateTimeField(auto_now_add=True)
    looked_at = models.DateTimeField(null=True)
    joined_at = models.DateTimeField(null=True)
    released_at = models.DateTimeField(null=True)
    """When it was asked to end."""
    released_by = models.CharField(max_length=150, blank=True)
    """A user's name; "": nobody needed it any more."""
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
    """What a queued attempt may expect of the sources, in words; written by the tick alone."""

    attempt = models.OneToOneField("runs.Attempt", on_delete=models.CASCADE, primary_key=True, related_name="machine")
    text = models.TextField()

    def __str__(self) -> str:
        return self.text
