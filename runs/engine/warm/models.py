"""Database model of warm servers: the settings that a run must share, the current user, and a requested end."""

from datetime import datetime, timedelta

from django.db import models

from runs.engine.models import Attempt


class WarmServer(models.Model):
    """Additional columns of an attempt of kind `warm`."""

    attempt = models.OneToOneField(Attempt, on_delete=models.CASCADE, primary_key=True, related_name="warm_server")
    key = models.CharField(max_length=64)
    """Key (workers.contract.stack.warm.key) of the runs that may use the server."""
    graphs = models.IntegerField()
    """Largest batch size with a CUDA graph; 0 for all sizes."""
    vllm = models.CharField(max_length=40, blank=True)
    """vLLM version that its host had announced when the server started."""
    minutes = models.IntegerField()
    """Minutes for which the server stays without a run."""
    used_by = models.OneToOneField(Attempt, null=True, on_delete=models.SET_NULL, related_name="uses_warm")
    """The attempt that uses the server; None if it is idle."""
    idle_since = models.DateTimeField(null=True)
    leaving = models.CharField(max_length=200, blank=True)
    """Sentence on why the server ends once it is idle, or "". Never cleared, so that no run gets an ending server."""

    @property
    def stops_at(self) -> datetime | None:
        return self.idle_since + timedelta(minutes=self.minutes) if self.idle_since else None
