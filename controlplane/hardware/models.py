"""Hosts as they announce themselves, what they say of models, and hardware profiles."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import models


class HostsInUse(models.Manager["Host"]):
    """Without those that an operator has removed."""

    def get_queryset(self) -> models.QuerySet[Host]:
        return super().get_queryset().filter(removed_at=None)


class Host(models.Model):
    """A machine whose Celery worker announced itself; the facts are the host's own words."""

    name = models.CharField(max_length=64, unique=True)
    inventory = models.JSONField(default=dict)
    """workers.host.announce.inventory(): boot_id, gpus, cpu_slots, memory, disk, versions, model_roots."""
    trainer_schema = models.JSONField(null=True)
    """workers.trainer.describe's answer: the fields of the installed GRPOConfig, typed; None: no trainer there."""
    announced_at = models.DateTimeField(null=True)
    """By the control plane's clock, as every time that decides something: a host's may be wrong."""
    draining = models.BooleanField(default=False)
    watched_at = models.DateTimeField(null=True)
    """When somebody last had its Hardware page open; it announces itself more often then."""
    history = models.JSONField(default=list)
    """The last readings of its GPUs, oldest first: [unix seconds, [util_percent or null, one a GPU in their order]]."""
    idle_mib = models.JSONField(default=dict)
    """What each GPU had in use when no lease held it: {index: MiB}. While one does, what is above is the run's."""
    removed_at = models.DateTimeField(null=True)
    """Out of sight on an operator's word; its runs keep their host, and its next announcement brings it back."""

    unsandboxed_allowed = models.BooleanField(default=False)
    """An admin lets rewards run code here although no sandbox holds it."""
    unsandboxed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    """Who."""

    objects = HostsInUse()
    every = models.Manager["Host"]()

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def is_fresh(self, now: datetime) -> bool:
        """Heard of lately: a launch can arrive there."""
        if self.announced_at is None:
            return False
        # A stamp of the future is that of a clock that was set back since.
        return abs(now - self.announced_at) <= timedelta(seconds=settings.HOST_STALE_AFTER_S)


class ModelInspection(models.Model):
    """A host's answer about one model; asked through Celery, answered over HTTP."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE)
    model = models.CharField(max_length=500)
    asked_at = models.DateTimeField(auto_now_add=True)
    answered_at = models.DateTimeField(null=True)
    answer = models.JSONField(null=True)
    """{"ok": bool, "error": str, "config": {...}, "parameters": int, "dtype": str, "chat_template": bool, ...}"""

    class Meta:
        ordering = ("-asked_at",)


class HardwareProfile(models.Model):
    """How a run uses GPUs, named; and the LoRA and batch sizes that it was made for, which a launch starts from."""

    name = models.CharField(max_length=80, unique=True)
    description = models.TextField(blank=True)
    spec = models.JSONField()
    """workers.contract.HardwareSpec, which a run freezes."""
    lora = models.JSONField(null=True)
    """workers.contract.LoraSpec; None: made for full fine-tuning."""
    batch = models.JSONField(default=dict)
    """GRPOConfig's own names (profiles.BATCH_FIELDS) -> value; what isn't here the profile leaves open."""
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name
