"""Queries for the acts that a person may see, with filters and the addresses of the objects."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.apps import apps
from django.db.models import Q, QuerySet
from django.urls import reverse

from controlplane.platform.accounts.models import User
from controlplane.platform.activity.models import FOR_ADMINS, KINDS, Act


@dataclass(frozen=True)
class ActFilter:
    """Filters of a list of acts, all of which must match; "" and None match everything."""

    q: str = ""
    """Words that must occur in the object's name or in what was done."""
    by: str = ""
    kind: str = ""
    key: str = ""
    since: date | None = None
    until: date | None = None


@dataclass(frozen=True)
class ShownAct:
    """Act with the label of its kind and the address of its object, or "" if this person can't open a page of it."""

    act: Act
    label: str
    address: str


def acts_for(user: User) -> QuerySet[Act]:
    """Return the acts that this user may see: all for admins; for others the public ones and their own."""
    acts = Act.objects.all()
    return acts if user.may_administer else acts.filter(~Q(kind__in=FOR_ADMINS) | Q(by=user))


def matching(acts: QuerySet[Act], filters: ActFilter) -> QuerySet[Act]:
    exact_filters = {"by_name": filters.by, "kind": filters.kind, "key": filters.key}
    acts = acts.filter(**{column: value for column, value in exact_filters.items() if value})
    for word in filters.q.split():
        acts = acts.filter(Q(name__icontains=word) | Q(what__icontains=word))
    if filters.since:
        acts = acts.filter(at__gte=_start_of(filters.since))
    if filters.until and filters.until < date.max:
        acts = acts.filter(at__lt=_start_of(filters.until + timedelta(days=1)))
    return acts


def with_addresses(acts: Iterable[Act], user: User) -> list[ShownAct]:
    """Return the acts with the addresses of their objects, if they still exist; one query per kind finds them."""
    acts = list(acts)
    keys = defaultdict(set)
    for act in acts:
        kind = KINDS.get(act.kind)
        if kind is not None and act.key and (user.may_administer or not kind.for_admins):
            keys[act.kind].add(act.key)
    existing_objects = {
        (name, str(pk))
        for name, pks in keys.items()
        for pk in apps.get_model(KINDS[name].model)._default_manager.filter(pk__in=pks).values_list("pk", flat=True)
    }
    rows = []
    for act in acts:
        kind = KINDS.get(act.kind)  # None for a kind of a newer version
        address = ""
        if kind is not None and (act.kind, act.key) in existing_objects:
            address = reverse(kind.route, args=[act.key] if kind.own_page else [])
        rows.append(ShownAct(act, kind.label if kind else act.kind, address))
    return rows


def people(user: User) -> list[str]:
    """Return the names of the users whose acts this person may see."""
    return list(acts_for(user).exclude(by_name="").order_by("by_name").values_list("by_name", flat=True).distinct())


def _start_of(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)
