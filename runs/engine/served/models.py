"""Database models of served models: the presence of viewers, chat turns and answers."""

from typing import Any

from django.conf import settings
from django.db import models

from runs.engine.models import Run
from workers.contract.reports.chat import Finish


class Served(models.Model):
    """Additional columns of a run of kind `serve`."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="served")
    present_until = models.DateTimeField(null=True)
    """Time until which a viewer counts as having the chat open."""
    stopped = models.IntegerField(default=0)
    """Number of the last turn whose answers, like those of earlier turns, must stop."""
    key_sha256 = models.CharField(max_length=64, blank=True)
    """SHA-256 of the key for requests, in hex; "" if the model accepts no requests."""


class Turn(models.Model):
    """A user's message to the served models."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="turns")
    number = models.IntegerField()
    """Number within its run, from 1."""
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    at = models.DateTimeField(auto_now_add=True)
    parent = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="+")
    """The turn that it continues; None for a new chat."""
    system = models.TextField(blank=True)
    prompt: "models.JSONField[Any, Any]" = models.JSONField()
    """The messages without the system prompt, the user's last; or a string if the dataset has plain-text prompts."""
    row = models.IntegerField(null=True)
    """The row of the run's dataset version that the prompt comes from."""
    sampling = models.JSONField()
    """The fields of workers.contract.reports.chat.Sampling."""

    class Meta:
        ordering = ("at", "pk")
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="turn_number")]

    @property
    def plain(self) -> bool:
        return isinstance(self.prompt, str)

    @property
    def text(self) -> str:
        return str(self.prompt if self.plain else self.prompt[-1]["content"])


class Answer(models.Model):
    """One model's answer, written by ingest in parts."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="answers")
    model = models.CharField(max_length=16)
    """TRAINED or BASE of workers.contract.reports.chat."""
    text = models.TextField(blank=True)
    finish = models.CharField(max_length=8, blank=True, choices=[(f.value, f.value) for f in Finish])
    """A Finish, or "" until the answer ends."""
    error = models.TextField(blank=True)
    tokens = models.IntegerField(null=True)
    seconds = models.FloatField(null=True)
    scores: "models.JSONField[Any, Any]" = models.JSONField(null=True)
    """Scores by the run's rewards, as [{"name", "value", "note"}]; None if not scored yet."""

    class Meta:
        ordering = ("pk",)
        constraints = [models.UniqueConstraint(fields=["turn", "model"], name="one_answer")]
