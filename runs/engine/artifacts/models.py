"""Copies of checkpoints in the artifact store, with their next check by upkeep."""

from django.db import models

from runs.engine.models import Attempt


class StoredCopy(models.Model):
    """A checkpoint's copy that the store may hold, in part or whole. Pages show its RunEvents instead."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="stored_copies")
    path = models.CharField(max_length=64)
    wanted = models.BooleanField(default=True)
    """False if upkeep is to remove the copy from the store."""
    next_at = models.DateTimeField(null=True, db_index=True)
    """The time of upkeep's next check; None if the copy is complete, so that there is nothing to do."""
    tries = models.IntegerField(default=0)
    problem = models.CharField(max_length=1000, blank=True)
    """The reason an unwanted copy is still in the store."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["attempt", "path"], name="stored_copy")]

    def __str__(self) -> str:
        return f"{self.attempt_id} {self.path}"
