"""Queries for items and their versions, through which all views access them."""

from collections.abc import Callable
from typing import TypeVar

from django.db import IntegrityError, transaction
from django.db.models import Count, Exists, Model, OuterRef, Q, QuerySet
from django.http import Http404, HttpRequest

from controlplane.catalogue.versioned.models import Item, Version

T = TypeVar("T")
ItemT = TypeVar("ItemT", bound=Item)
VersionT = TypeVar("VersionT", bound=Version)


def item_for(model: type[ItemT], request: HttpRequest, item_id: int) -> ItemT:
    """Find an item if a user is signed in; its `run_count` is the number of runs that use one of its versions."""
    if request.user.is_authenticated:
        items = model._default_manager.select_related("owner").annotate(run_count=Count("versions__runs"))
        if (item := items.filter(pk=item_id).first()) is not None:
            return item
    raise Http404


def version_for(model: type[VersionT], request: HttpRequest, item_id: int, number: int) -> VersionT:
    if request.user.is_authenticated:
        versions = existing_versions(model).select_related(f"{model.kind.item}__owner", "created_by")
        if (version := versions.filter(**{model.kind.item: item_id, "number": number}).first()) is not None:
            return version
    raise Http404


def newest_versions(model: type[VersionT]) -> QuerySet[VersionT]:
    """Find the newest version of each item, ordered by the item's name."""
    return _by_name(model).filter(~Exists(_newer(model)))


def offered_versions(model: type[VersionT], chosen_version: object = None) -> QuerySet[VersionT]:
    """Find the versions to offer for a new run: the newest of each active item, and `chosen_version` (a pk from a
    form) if its item is active."""
    digits = str(chosen_version or "")
    pk = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 18 else None
    active_versions = _by_name(model).filter(**{f"{model.kind.item}__archived_at": None})
    return active_versions.filter(Q(~Exists(_newer(model))) | Q(pk=pk))


def with_free_name(model: type[Model], name: str, save: Callable[[str], T]) -> T:
    """Call `save` with the free name for `name`, in a transaction. If another user takes it first, try the next one."""
    while True:
        free = free_name(model, name)
        try:
            with transaction.atomic():
                return save(free)
        except IntegrityError:
            if not model._default_manager.filter(name=free).exists():
                raise  # a conflict other than the name


def free_name(model: type[Model], name: str) -> str:
    """Return `name`, with the first free number appended if another row has it."""
    used_names = set(model._default_manager.values_list("name", flat=True))
    max_length = 80 - len(" 999")
    names = [name, *(f"{name[:max_length]} {number}" for number in range(2, len(used_names) + 3))]
    return next(name for name in names if name not in used_names)


def _by_name(model: type[VersionT]) -> QuerySet[VersionT]:
    return existing_versions(model).select_related(model.kind.item).order_by(f"{model.kind.item}__name")


def existing_versions(model: type[VersionT]) -> QuerySet[VersionT]:
    """Find the versions of all items that aren't deleted."""
    return model._default_manager.filter(**{f"{model.kind.item}__deleted_at": None})


def _newer(model: type[VersionT]) -> QuerySet[VersionT]:
    item = model.kind.item
    return model._default_manager.filter(**{item: OuterRef(item)}, number__gt=OuterRef("number"))
