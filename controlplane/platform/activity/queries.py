"""Who may see which acts, and the acts that somebody looks for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.apps import apps
from django.db.models import Q, QuerySet
from django.urls import reverse

from controlplane.platform.accounts.models import User
from controlplane.platform.activity.kinds import FOR_ADMINS, KINDS
from controlplane.platform.activity.models import Act


@dataclass(frozen=True)
class ActFilter:
    """Each narrows the others; "" and None: any."""

    q: str = ""
    """Words in the object's name or in what was done."""
    by: str = ""
    """A user's name."""
    kind: str = ""
    key: str = ""
    """The object's, with its kind."""
    since: date | None = None
    until: date | None = None
    """The last day, in UTC like `since`."""


@dataclass(frozen=True)
class ShownAct:
    """An act with the page of its object; "": there is none, or not for this person."""

    act: Act
    label: str
    address: str


def acts_for(user: User) -> QuerySet[Act]:
    """All of them for admins; for others what everybody may see, and what they did themselves."""
    acts = Act.objects.all()
    return acts if user.may_administer else acts.filter(~Q(kind__in=FOR_ADMINS) | Q(by=user))


def matching(acts: QuerySet[Act], wanted: ActFilter) -> QuerySet[Act]:
    exact = {"by_name": wanted.by, "kind": wanted.kind, "key": wanted.key}
    acts = acts.filter(**{column: value for column, value in exact.items() if value})
    for word in wanted.q.split():
        acts = acts.filter(Q(name__icontains=word) | Q(what__icontains=word))
    if wanted.since:
        acts = acts.filter(at__gte=_midnight(wanted.since))
    if wanted.until and wanted.until < date.max:
        acts = acts.filter(at__lt=_midnight(wanted.until + timedelta(days=1)))
    return acts


def shown(acts: Iterable[Act], user: User) -> list[ShownAct]:
    """Add the addresses of objects that still exist, with one query per kind."""
    acts = list(acts)
    keys = defaultdict(set)
    for act in acts:
        kind = KINDS.get(act.kind)
        if kind is not None and act.key and (user.may_administer or not kind.for_admins):
            keys[act.kind].add(act.key)
    there = {
        (name, str(pk))
        for name, wanted in keys.items()
        for pk in apps.get_model(KINDS[name].model)._default_manager.filter(pk__in=wanted).values_list("pk", flat=True)
    }
    return [_shown(act, (act.kind, act.key) in there) for act in acts]


def _shown(act: Act, there: bool) -> ShownAct:
    kind = KINDS.get(act.kind)
    if kind is None:  # of a newer version
        return ShownAct(act, act.kind, "")
    return ShownAct(act, kind.label, reverse(kind.route, args=[act.key] if kind.own_page else []) if there else "")


def people(user: User) -> list[str]:
    """Users whose acts this person may see, by name."""
    return list(acts_for(user).exclude(by_name="").order_by("by_name").values_list("by_name", flat=True).distinct())


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)
