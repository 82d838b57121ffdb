"""Hosts as they announce themselves, model inspections, and hardware profiles."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import models

from controlplane.platform.deletable import Deletable, Kept, unique_name


class HostsInUse(models.Manager["Host"]):
    """Manager that excludes removed hosts."""

    def get_queryset(self) -> "models.QuerySet[Host]":
        return super().get_queryset().filter(removed_at=None)


class Host(models.Model):
    """A machine whose Celery worker has announced itself, with the facts that the worker reports."""

    name = models.CharField(max_length=64, unique=True)
    inventory = models.JSONField(default=dict)
    """Result of workers.host.announce.inventory(): boot_id, gpus, cpu_slots, memory, disk, versions, model_roots."""
    trainer_schema = models.JSONField(null=True)
    """Output of workers.trainer.describe: the typed fields of the installed GRPOConfig; None if the host has none."""
    announced_at = models.DateTimeField(null=True)
    """Time of the last announcement by the control plane's clock, since a host's clock may be wrong."""
    draining = models.BooleanField(default=False)
    watched_at = models.DateTimeField(null=True)
    """Time at which the host's Hardware page was last open; while it is open, the host announces itself more often."""
    history = models.JSONField(default=list)
    """Latest readings of its GPUs, oldest first: [unix seconds, [util_percent or null, one per GPU in order]]."""
    idle_mib = models.JSONField(default=dict)
    """Memory used on each GPU while it had no lease, {index: MiB}; anything above this belongs to a lease's run."""
    removed_at = models.DateTimeField(null=True)
    """Time at which an operator removed the host; its runs keep it, and its next announcement restores it."""

    unsandboxed_allowed = models.BooleanField(default=False)
    """True if an admin allows rewards to run code on this host without a sandbox."""
    unsandboxed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    gpu_hour_price = models.FloatField(null=True)
    """Price of one GPU per hour, set by an admin; None if costs aren't shown."""
    CURRENCY_LENGTH = 5
    currency = models.CharField(max_length=CURRENCY_LENGTH, blank=True)
    serve_address = models.GenericIPAddressField(null=True)
    """Address, in addition to loopback, on which an admin lets served models listen."""

    objects = HostsInUse()
    every = models.Manager["Host"]()

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def vllm(self) -> str:
        """Version of vLLM in the trainer's environment, at most 40 characters, or "" if the host announces none."""
        return str((self.inventory.get("versions") or {}).get("vllm") or "")[:40]

    def is_fresh(self, now: datetime) -> bool:
        """Return whether the host has announced itself recently, so that launches can reach it."""
        if self.announced_at is None:
            return False
        # A timestamp in the future means that the clock was set back since.
        return abs(now - self.announced_at) <= timedelta(seconds=settings.HOST_STALE_AFTER_S)

    def is_another_machine(self, boot_id: object, now: datetime) -> bool:
        """Return whether an announcement comes from a second machine with this host's name and token, a copy of its
        disk, while the first is online. After a restart, the earlier boot soon goes stale."""
        current_boot_id = self.inventory.get("boot_id") if isinstance(self.inventory, dict) else ""
        return bool(current_boot_id and boot_id and current_boot_id != boot_id) and self.is_fresh(now)


class ModelInspection(models.Model):
    """A host's inspection of one model, requested over Celery and returned over HTTP."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE)
    model = models.CharField(max_length=500)
    revision = models.CharField(max_length=200, blank=True)
    """Revision of a model on the hub; "" for the newest."""
    asked_at = models.DateTimeField(auto_now_add=True)
    answered_at = models.DateTimeField(null=True)
    answer = models.JSONField(null=True)
    """Result: {"ok": bool, "error": str, "config": {...}, "parameters": int, "dtype": str, "chat_template": bool,
    ...}"""

    class Meta:
        ordering = ("-asked_at",)


class HardwareProfile(Deletable):
    """A configuration of GPUs for runs, with default LoRA and batch sizes."""

    name = models.CharField(max_length=80)
    description = models.TextField(blank=True)
    spec = models.JSONField()
    """workers.contract.run.hardware.HardwareSpec, of which each run keeps a frozen copy."""
    lora = models.JSONField(null=True)
    """workers.contract.run.spec.LoraSpec; None for full fine-tuning."""
    batch = models.JSONField(default=dict)
    """Values of the GRPOConfig arguments in BATCH_FIELDS; the profile sets no default for a missing one."""
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    archived_at = models.DateTimeField(null=True)
    """Time at which the profile was archived; since then it isn't offered for new runs."""
    created_at = models.DateTimeField(auto_now_add=True)

    objects = Kept["HardwareProfile"]()
    every = models.Manager["HardwareProfile"]()

    class Meta:
        ordering = ("name",)
        constraints = [unique_name("profile_name")]

    def __str__(self) -> str:
        return self.name
