"""The kinds of objects that people act on: what they are called, where they are shown, who may know of them."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Model


@dataclass(frozen=True)
class RecordedKind:
    label: str
    model: str
    """`app.Model`"""
    route: str
    """Route of its page."""
    own_page: bool = True
    """The route takes the primary key. False: it is a page about all of them."""
    for_admins: bool = False
    """Others see only what they did themselves."""


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


def kind_of(row: Model) -> str:
    """Raises LookupError for a row of another model."""
    return _BY_MODEL[row._meta.label]


_BY_MODEL = {kind.model: name for name, kind in reversed(KINDS.items())}  # of two, the first
