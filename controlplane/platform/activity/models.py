"""Acts of people in this installation. The Events page and the API read them."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone


class Act(models.Model):
    """One act of a person. It stays when the person or the object is deleted, under the names of that moment."""

    at = models.DateTimeField(default=timezone.now)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    by_name = models.CharField(max_length=150)
    """"": nobody, as of a failed sign-in."""
    token = models.CharField(max_length=80, blank=True)
    """The name of the API token it was done with; "" in the browser."""
    kind = models.CharField(max_length=16)
    """The object's kind: one of `kinds.KINDS`."""
    key = models.CharField(max_length=40, blank=True)
    """The object's primary key."""
    name = models.CharField(max_length=200, blank=True)
    what = models.CharField(max_length=500)
    """The act as a phrase in the past tense: `Archived version 2`."""

    class Meta:
        ordering = ("-at", "-pk")
        indexes = [
            models.Index(fields=["-at", "-id"], name="act_newest"),
            models.Index(fields=["by_name", "-at", "-id"], name="act_by"),
            models.Index(fields=["kind", "-at", "-id"], name="act_kind"),
            models.Index(fields=["kind", "key", "-at", "-id"], name="act_object"),
        ]

    def __str__(self) -> str:
        return f"{self.by_name}: {self.what}"
