"""Links that share a run. A link ends when it expires or is revoked, when its run is archived or deleted, and when its
creator's account is disabled."""

import secrets
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from controlplane.platform.accounts.models import User
from controlplane.platform.http.tokens import hashed
from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent
from runs.engine.sharing.models import SharedLink
from runs.engine.timeline import add_event

MAX_OPEN = 20
"""Upper bound of a run's links that are open at the same time."""
FORGOTTEN_AFTER = timedelta(days=90)
"""Time for which an ended link is kept, so that its visitors learn why it ended."""
OPENED_EVERY = timedelta(minutes=1)
"""Shortest time between two writes of `opened_at`, so that not every visit writes."""
ENDS = ("archived", "deleted")
"""Events of a run that end its links."""


class NotShared(Exception):
    """No link was created; the message says why."""


def create(run: Run, user: User, *, until: datetime, with_completions: bool) -> tuple[SharedLink, str]:
    """Create a link to a run. Return it with its token, which isn't stored. Raises NotShared if sharing is off, `until`
    is out of range, the run is archived, or it has too many open links."""
    now = timezone.now()
    if not settings.SHARE_MAX_DAYS:
        raise NotShared("Sharing is turned off in this installation (CONTROLPLANE_SHARE_MAX_DAYS=0).")
    if until <= now or until > now + timedelta(days=settings.SHARE_MAX_DAYS):
        raise NotShared(f"A link must end in the future, within {settings.SHARE_MAX_DAYS} days.")
    token = secrets.token_urlsafe(32)
    with transaction.atomic():
        # Writers of events lock the attempt's row; that also keeps two people from exceeding the limit together.
        attempt = Attempt.objects.select_for_update().filter(run=run).latest("number")
        if Run.objects.values_list("archived_at", flat=True).get(pk=run.pk) is not None:
            raise NotShared(f"{run.name} is archived, and archived runs can't be shared. Unarchive it first.")
        if open_links(run).count() >= MAX_OPEN:
            raise NotShared(f"{run.name} already has {MAX_OPEN} open links, the maximum. Revoke one first.")
        link = SharedLink.objects.create(
            run=run, token_hash=hashed(token), made_by=user, expires_at=until, with_completions=with_completions
        )
        data = {"until": until.isoformat(), "completions": with_completions, "link": link.pk}
        add_event(attempt, "shared", user.get_username(), **data)
    return link, token


def open_links(run: Run) -> QuerySet[SharedLink]:
    """List a run's links that can be opened now, newest first."""
    return _filter_open(SharedLink.objects.filter(run=run)).select_related("made_by")


def find(token: str) -> SharedLink | None:
    return SharedLink.objects.filter(token_hash=hashed(token)).first()


def end_reason(link: SharedLink) -> str:
    """Explain why a link has ended, or return "" if it is open."""
    if _filter_open(SharedLink.objects.filter(pk=link.pk)).exists():
        return ""
    if link.revoked_at is None and link.expires_at <= timezone.now():
        return f"This link expired on {link.expires_at:%-d %B %Y}."
    return "This link was revoked by the people who run this installation."


def record_opening(link: SharedLink) -> None:
    now = timezone.now()
    if link.opened_at is None or now - link.opened_at > OPENED_EVERY:
        SharedLink.objects.filter(pk=link.pk).update(opened_at=now)


def revoke(link: SharedLink, user: User) -> bool:
    """Revoke a link. Return False if it was already revoked."""
    with transaction.atomic():
        attempt = Attempt.objects.select_for_update().filter(run=link.run_id).latest("number")
        now = timezone.now()
        if not SharedLink.objects.filter(pk=link.pk, revoked_at=None).update(revoked_at=now):
            return False
        add_event(attempt, "share_revoked", user.get_username(), link=link.pk)
    return True


def forget(now: datetime) -> None:
    """Delete the links that expired or were revoked more than FORGOTTEN_AFTER ago."""
    cutoff = now - FORGOTTEN_AFTER
    SharedLink.objects.filter(Q(expires_at__lt=cutoff) | Q(revoked_at__lt=cutoff)).delete()


def _filter_open(links: QuerySet[SharedLink]) -> QuerySet[SharedLink]:
    # A run that comes back doesn't bring its links back.
    ending_events = RunEvent.objects.filter(run=OuterRef("run"), kind__in=ENDS, at__gte=OuterRef("created_at"))
    shareable_runs = Run.objects.filter(pk=OuterRef("run"), archived_at=None)
    live_links = links.filter(revoked_at=None, expires_at__gt=timezone.now(), made_by__is_active=True)
    return live_links.filter(Exists(shareable_runs), ~Exists(ending_events))
