"""Alert targets and their deliveries."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from controlplane.platform import sealing


class TargetKind(models.TextChoices):
    WEBHOOK = "webhook", "Webhook"
    MAIL = "mail", "Mail"


class Topic(models.TextChoices):
    """Kinds of events that a target may receive: health alerts by level, and ends of runs by status."""

    BAD = "bad", "Runs that become unhealthy"
    WARNING = "warning", "Runs that need attention"
    FAILED = "failed", "Runs that fail"
    SUCCEEDED = "succeeded", "Runs that finish"
    STOPPED = "stopped", "Runs that are stopped"


class AlertTarget(models.Model):
    name = models.CharField(max_length=80, unique=True)
    run = models.ForeignKey("runs.Run", null=True, on_delete=models.CASCADE, related_name="followers")
    """The run that `by` follows; None if an admin set up the target for all runs."""
    kind = models.CharField(max_length=8, choices=TargetKind.choices, default=TargetKind.WEBHOOK)
    sealed = models.TextField()
    """The address, encrypted because anyone who knows a webhook's address can post there."""
    shown = models.CharField(max_length=200)
    """The address as pages show it, without its secret part."""
    wants: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list)
    private_too = models.BooleanField(default=False)
    links_to = models.CharField(max_length=300)
    """This installation's base URL, for links in messages."""
    enabled = models.BooleanField(default=True)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    """The user who last saved the target."""
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)
        constraints = [
            models.UniqueConstraint(fields=["run", "by"], condition=Q(run__isnull=False), name="follows_once")
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def address(self) -> str:
        return sealing.unseal(self.sealed)

    def topics(self) -> list[str]:
        return [str(Topic(topic).label) for topic in self.wants if topic in Topic.values]


def installations() -> models.QuerySet[AlertTarget]:
    """Find the targets that admins set up, for all runs."""
    return AlertTarget.objects.filter(run=None)


class State(models.TextChoices):
    WAITING = "waiting", "Waiting"
    SENT = "sent", "Sent"
    FAILED = "failed", "Not sent"


class AlertDelivery(models.Model):
    """One event for one target: first an entry of the queue, then the record of its delivery."""

    target = models.ForeignKey(AlertTarget, on_delete=models.CASCADE, related_name="deliveries")
    event = models.ForeignKey("runs.RunEvent", null=True, on_delete=models.CASCADE, related_name="+")
    """The event to report; None for a test message."""
    state = models.CharField(max_length=8, choices=State.choices, default=State.WAITING)
    tries = models.IntegerField(default=0)
    due_at = models.DateTimeField()
    """The time of the next attempt; during an attempt, the time after which another worker may take over."""
    claim = models.CharField(max_length=32, blank=True)
    error = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        indexes = [models.Index(fields=["due_at"], condition=Q(state="waiting"), name="waiting_deliveries")]
        constraints = [models.UniqueConstraint(fields=["target", "event"], name="told_once")]

    @property
    def chip(self) -> str:
        return {State.SENT: "good", State.FAILED: "bad"}.get(State(self.state), "")
