"""Reward configs: which functions of the library score a completion, with weights and parameters."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class RewardConfig(models.Model):
    name = models.CharField(max_length=80, unique=True)
    description = models.TextField(blank=True)
    components = models.JSONField(default=list)
    """A list of workers.contract.RewardSpec; component names are unique."""
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name
