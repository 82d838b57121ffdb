"""The database rows of served models: presence of viewers, chat turns and answers."""

from typing import Any

from django.conf import settings
from django.db import models

from runs.engine.models import Run
from workers.contract.reports.chat import Finish


class Served(models.Model):
    """Further columns of a run of kind `serve`."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="served")
    present_until = models.DateTimeField(null=True)
    """The time until which a viewer counts as having the chat open."""
    stopped = models.IntegerField(default=0)
    """Answers to turns up to this number must end."""
    key_sha256 = models.CharField(max_length=64, blank=True)
    """SHA-256 of the key for requests, in hex; empty: it accepts no requests."""


class Turn(models.Model):
    """A person's message to the served models."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="turns")
    number = models.IntegerField()
    """The number within its run, from 1."""
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    at = models.DateTimeField(auto_now_add=True)
    parent = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="+")
    """The turn that it continues; None: a new chat."""
    system = models.TextField(blank=True)
    prompt: "models.JSONField[Any, Any]" = models.JSONField()
    """Messages without the system prompt, the last one the user's; a string if the dataset has plain-text prompts."""
    row = models.IntegerField(null=True)
    """The row of the run's dataset version whose prompt this is."""
    sampling = models.JSONField()
    """workers.contract.reports.chat.Sampling"""

    class Meta:
        ordering = ("at", "pk")
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="turn_number")]

    @property
    def plain(self) -> bool:
        return isinstance(self.prompt, str)

    @property
    def text(self) -> str:
        """The person's own text."""
        return str(self.prompt if self.plain else self.prompt[-1]["content"])


class Answer(models.Model):
    """One model's answer; written by ingest, piece by piece."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="answers")
    model = models.CharField(max_length=16)
    """workers.contract.reports.chat.TRAINED or BASE"""
    text = models.TextField(blank=True)
    finish = models.CharField(max_length=8, blank=True, choices=[(f.value, f.value) for f in Finish])
    """A Finish; empty until it ends."""
    error = models.TextField(blank=True)
    tokens = models.IntegerField(null=True)
    seconds = models.FloatField(null=True)
    scores: "models.JSONField[Any, Any]" = models.JSONField(null=True)
    """[{"name", "value", "note"}] by the run's rewards; None: not scored yet."""

    class Meta:
        ordering = ("pk",)
        constraints = [models.UniqueConstraint(fields=["turn", "model"], name="one_answer")]
