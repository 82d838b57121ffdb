"""Mail about one run to the people who follow it. Each follower has an alert target for this run only."""

from dataclasses import dataclass
from typing import Any

from django import forms
from django.conf import settings
from django.db import transaction

from controlplane.platform import sealing
from controlplane.platform.accounts.models import User
from runs.engine.alerts.forms import mask
from runs.engine.alerts.models import AlertDelivery, AlertTarget, State, TargetKind, Topic
from runs.engine.models import Run

MAX_PER_USER = 200
NO_SERVER = "This installation has no mail server. An admin can set CONTROLPLANE_SMTP_HOST."


class NotFollowed(Exception):
    """The run can't be followed; the message says why."""


class FollowForm(forms.Form):
    mail = forms.EmailField(
        label="Mail address", max_length=254, widget=forms.EmailInput(attrs={"autocomplete": "email"})
    )


@dataclass(frozen=True)
class Following:
    """A user's subscription to mail about a run."""

    possible: bool
    """True if the installation has a mail server."""
    to: str
    """The masked address, or "" if the user gets no mail."""
    problem: str
    """The reason the last mail was not sent, or "" if it was."""


def of(run: Run, user: User) -> Following:
    target = AlertTarget.objects.filter(run=run, by=user).first()
    last_delivery = AlertDelivery.objects.filter(target=target).first() if target else None
    problem = last_delivery.error if last_delivery and last_delivery.state == State.FAILED else ""
    return Following(bool(settings.EMAIL_HOST), target.shown if target else "", problem)


def usual_address(user: User) -> str:
    """Suggest the address that the user last followed a run with, or else the account's address, which may be ""."""
    last_target = AlertTarget.objects.filter(by=user, run__isnull=False).order_by("-pk").first()
    try:
        return last_target.address if last_target else user.email
    except sealing.CannotOpen:
        return user.email


def follow(run: Run, user: User, address: str, links_to: str) -> None:
    """Subscribe the user to mail about the run. `links_to` is this installation's address. Raises NotFollowed if no
    mail server is set up or the user already follows the maximum number of runs."""
    if not settings.EMAIL_HOST:
        raise NotFollowed(NO_SERVER)
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)  # two clicks must not both create a row
        if AlertTarget.objects.filter(by=user, run__isnull=False).exclude(run=run).count() >= MAX_PER_USER:
            raise NotFollowed(f"You already follow {MAX_PER_USER} runs, the maximum. Stop following one first.")
        columns: dict[str, Any] = {
            "name": f"{run.pk} for {user.pk}, {user.get_username()}"[:80],
            "kind": TargetKind.MAIL,
            "sealed": sealing.seal(address),
            "shown": mask(TargetKind.MAIL, address),
            "wants": list(Topic.values),
            "links_to": links_to,
        }
        AlertTarget.objects.update_or_create(run=run, by=user, defaults=columns)


def unfollow(run: Run, user: User) -> None:
    AlertTarget.objects.filter(run=run, by=user).delete()
