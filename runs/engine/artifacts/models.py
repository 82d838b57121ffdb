"""What the artifact store may hold of checkpoints, and what is still to be done about it."""

from __future__ import annotations

from django.db import models

from runs.engine.models import Attempt


class StoredCopy(models.Model):
    """A checkpoint of which the store may hold something. What is said of it on pages are RunEvents."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="stored_copies")
    path = models.CharField(max_length=64)
    wanted = models.BooleanField(default=True)
    """False: it is to leave the store."""
    next_at = models.DateTimeField(null=True, db_index=True)
    """When upkeep looks at it; None: it is whole, and nothing is to be done."""
    tries = models.IntegerField(default=0)
    """Of upkeep."""
    problem = models.CharField(max_length=1000, blank=True)
    """Why it is still in the store although it isn't wanted."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["attempt", "path"], name="stored_copy")]

    def __str__(self) -> str:
        return f"{self.attempt_id} {self.path}"
