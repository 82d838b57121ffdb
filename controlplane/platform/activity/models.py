"""People's acts in this installation, which the Events page and the API show, and the kinds of their objects."""

from dataclasses import dataclass

from django.conf import settings
from django.db import models
from django.utils import timezone


@dataclass(frozen=True)
class RecordedKind:
    label: str
    model: str
    """Label of the model, such as `runs.Run`."""
    route: str
    own_page: bool = True
    """True if the route takes a primary key; False if it leads to a page of all objects of the kind."""
    for_admins: bool = False
    """True if users other than admins see only their own acts."""


KINDS: dict[str, RecordedKind] = {
    "run": RecordedKind("Run", "runs.Run", "run"),
    "dataset": RecordedKind("Dataset", "datasets.Dataset", "dataset"),
    "corpus": RecordedKind("Corpus", "datasets.Corpus", "corpora", own_page=False),
    "reward": RecordedKind("Reward config", "rewards.RewardConfig", "reward_config"),
    "environment": RecordedKind("Environment", "environments.Environment", "environment"),
    "profile": RecordedKind("Hardware profile", "hardware.HardwareProfile", "profile"),
    "preset": RecordedKind("Health preset", "runs.HealthPreset", "health_preset"),
    "host": RecordedKind("Host", "hardware.Host", "hardware", own_page=False),
    "machines": RecordedKind(
        "Source of machines", "machines.MachineSource", "hardware", own_page=False, for_admins=True
    ),
    "user": RecordedKind("User", "accounts.User", "users", own_page=False, for_admins=True),
    "session": RecordedKind("Sign-in", "accounts.User", "users", own_page=False, for_admins=True),
    "token": RecordedKind("API token", "accounts.ApiToken", "api_tokens", own_page=False, for_admins=True),
    "secret": RecordedKind("Secret", "accounts.Secret", "secret", for_admins=True),
    "alert": RecordedKind("Alert channel", "alerting.AlertTarget", "alert_target", for_admins=True),
}
FOR_ADMINS = tuple(name for name, kind in KINDS.items() if kind.for_admins)
_BY_MODEL = {kind.model: name for name, kind in reversed(KINDS.items())}  # of two, the first


class Act(models.Model):
    """Act of a person. It outlives the person and the object, under the names that they had."""

    at = models.DateTimeField(default=timezone.now)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    by_name = models.CharField(max_length=150)
    """Name of the user; "" if there is none, as for a failed sign-in."""
    token = models.CharField(max_length=80, blank=True)
    """Name of the API token that was used; "" if the user acted in the browser."""
    kind = models.CharField(max_length=16)
    key = models.CharField(max_length=40, blank=True)
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


def kind_of(row: models.Model) -> str:
    """Return the key in `KINDS` of a row's model. Raises LookupError for other models."""
    return _BY_MODEL[row._meta.label]
