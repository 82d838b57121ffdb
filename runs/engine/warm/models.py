"""The database rows of warm servers: the settings that a run must share, the current user, and a requested end."""

from datetime import datetime, timedelta

from django.db import models

from runs.engine.models import Attempt


class WarmServer(models.Model):
    """Further columns of an attempt of kind `warm`."""

    attempt = models.OneToOneField(Attempt, on_delete=models.CASCADE, primary_key=True, related_name="warm_server")
    key = models.CharField(max_length=64)
    """workers.contract.stack.warm.key of the runs that may use it."""
    graphs = models.IntegerField()
    """The largest batch with a CUDA graph; 0: all sizes."""
    vllm = models.CharField(max_length=40, blank=True)
    """The vLLM version that its host announced at the start."""
    minutes = models.IntegerField()
    """The time that it stays without a run."""
    used_by = models.OneToOneField(Attempt, null=True, on_delete=models.SET_NULL, related_name="uses_warm")
    """The attempt that uses it; None: it is idle."""
    idle_since = models.DateTimeField(null=True)
    leaving = models.CharField(max_length=200, blank=True)
    """The reason why it ends as soon as it is idle, in words; empty: it stays. It is never cleared, so that no run gets
    a server that is ending."""

    @property
    def stops_at(self) -> datetime | None:
        return self.idle_since + timedelta(minutes=self.minutes) if self.idle_since else None
