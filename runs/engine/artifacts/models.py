"""Copies of checkpoints in the artifact store, with their next check by upkeep."""

from django.db import models

from runs.engine.models import Attempt


class StoredCopy(models.Model):
    """A checkpoint that the store may hold, in part or whole. Pages show its RunEvents instead."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="stored_copies")
    path = models.CharField(max_length=64)
    wanted = models.BooleanField(default=True)
    """False: upkeep removes it from the store."""
    next_at = models.DateTimeField(null=True, db_index=True)
    """The time of upkeep's next check; None: it is complete, so there is nothing to do."""
    tries = models.IntegerField(default=0)
    """Checks by upkeep so far."""
    problem = models.CharField(max_length=1000, blank=True)
    """The reason why it is still in the store although it isn't wanted."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["attempt", "path"], name="stored_copy")]

    def __str__(self) -> str:
        return f"{self.attempt_id} {self.path}"
