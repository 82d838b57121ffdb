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


class MachineSource(models.Model):
    """A source of machines: an engine, its settings, and the shape of the machines requested from it."""

    name = models.CharField(max_length=40, unique=True)
    """Unique name, with which the names of its hosts begin."""
    kind = models.CharField(max_length=16)
    """A key of KINDS, or a kind that only another version knows."""
    options: "models.JSONField[dict[str, str], dict[str, str]]" = models.JSONField(default=dict)
    control_url = models.CharField(max_length=300)
    """The control plane's address, as its machines reach it."""
    most = models.IntegerField(default=1)
    """Maximum number of machines that exist at the same time."""
    idle_minutes = models.IntegerField(default=10)
    """Minutes without a run after which a machine leaves."""
    patience_minutes = models.IntegerField(default=5)
    """Minutes for which a run waits for a busy host before a machine is requested."""
    gpus = models.IntegerField(default=1)
    gpu_kind = models.CharField(max_length=40, blank=True)
    gpu_memory_gib = models.IntegerField(default=0)
    """Memory of each GPU, used only for display; 0 if unknown."""
    cpus = models.IntegerField(default=8)
    memory_gib = models.IntegerField(default=0)
    minutes = models.IntegerField(default=24 * 60)
    enabled = models.BooleanField(default=True)
    """True if new machines are requested; existing ones are managed in any case."""
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    changed_at = models.DateTimeField(auto_now=True)
    """Time of the last save; earlier failures of its machines are ignored."""

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def shape(self) -> MachineShape:
        return MachineShape(**{field.name: getattr(self, field.name) for field in fields(MachineShape)})

    @property
    def gpu_hour(self) -> Money | None:
        usd = KINDS[self.kind].gpu_hour_usd(self.options) if self.kind in KINDS else None
        return None if usd is None else Money(float(usd), "$")

    def inventory(self) -> dict[str, Any]:
        """Build the part of a machine's announcement that scheduling needs."""
        memory = self.gpu_memory_gib * 1024
        return {
            "gpus": [{"index": i, "memory_mib": memory, "used_mib": 0} for i in range(self.gpus)],
            "cpu_slots": self.shape.cpu_slots,
            "sandbox": {"backend": "assumed", "tried": {}},
        }


class MachineRequest(models.Model):
    """One machine, from its request to its end."""

    class State(models.TextChoices):
        ASKING = "asking", "asking"
        """The engine has not responded yet."""
        WAITING = "waiting", "waiting"
        """The engine has accepted the request; `phase` says how far it is."""
        JOINED = "joined", "joined"
        LEFT = "left", "left"
        """The machine joined, and its host left."""
        RELEASED = "released", "released"
        """The request was withdrawn before the machine joined."""
        FAILED = "failed", "failed"
        """The engine refused the request, or the machine ended without having joined."""
        LOST = "lost", "lost"
        """The machine joined, and ended before its host left."""

    source = models.ForeignKey(MachineSource, on_delete=models.PROTECT, related_name="requests")
    attempt = models.ForeignKey("runs.Attempt", null=True, on_delete=models.SET_NULL, related_name="+")
    """The attempt for which the machine was requested; others may use it, too."""
    offers: "models.JSONField[dict[str, Any], dict[str, Any]]" = models.JSONField(default=dict)
    """The source's inventory at the time of the request, since the source may change later."""
    host_name = models.CharField(max_length=64, unique=True)
    code = models.ForeignKey("joining.JoinCode", null=True, on_delete=models.SET_NULL, related_name="+")
    handle = models.CharField(max_length=200, blank=True)
    """The engine's name for the machine, or "" until the engine responds."""
    state = models.CharField(max_length=10, choices=State.choices, default=State.ASKING)
    phase = models.CharField(max_length=10, blank=True)
    """The MachinePhase that the engine reported last."""
    sentence = models.TextField(blank=True)
    """The engine's last report, as users see it, or the reason the machine ended."""
    created_at = models.DateTimeField(auto_now_add=True)
    looked_at = models.DateTimeField(null=True)
    joined_at = models.DateTimeField(null=True)
    released_at = models.DateTimeField(null=True)
    released_by = models.CharField(max_length=150, blank=True)
    """Name of the user who released it, or "" if it was released because no run needed it."""
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
    """Sentences on what a queued attempt can expect from the machine sources. Only machines.requests writes them."""

    attempt = models.OneToOneField("runs.Attempt", on_delete=models.CASCADE, primary_key=True, related_name="machine")
    text = models.TextField()
