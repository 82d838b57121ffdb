"""The rows of warm servers: what a run must have in common with one, who uses it, and whether it is to end."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models

from runs.engine.models import Attempt


class WarmServer(models.Model):
    """What an attempt of kind `warm` has beyond an attempt."""

    attempt = models.OneToOneField(Attempt, on_delete=models.CASCADE, primary_key=True, related_name="warm_server")
    key = models.CharField(max_length=64)
    """workers.contract.stack.warm.key of the runs that may use it."""
    graphs = models.IntegerField()
    """The largest batch with a CUDA graph; 0: all sizes."""
    vllm = models.CharField(max_length=40, blank=True)
    """The version that its host announced when it was started."""
    minutes = models.IntegerField()
    """How long it stays without a run."""
    used_by = models.OneToOneField(Attempt, null=True, on_delete=models.SET_NULL, related_name="uses_warm")
    """One attempt at a time; None: it is idle."""
    idle_since = models.DateTimeField(null=True)
    leaving = models.CharField(max_length=200, blank=True)
    """Why it is to end as soon as it is idle, in words; "": it stays. Once set it is never taken back, so that no run
    is given a server that ends."""

    def __str__(self) -> str:
        return self.attempt_id

    @property
    def stops_at(self) -> datetime | None:
        return self.idle_since + timedelta(minutes=self.minutes) if self.idle_since else None
