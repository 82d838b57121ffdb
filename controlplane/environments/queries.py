"""Access to environments and versions: the only way for views to get one."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import Http404, HttpRequest

from controlplane.environments.models import Environment, EnvironmentVersion


def environments_for(request: HttpRequest) -> QuerySet[Environment]:
    """All environments, for every signed-in user."""
    if not request.user.is_authenticated:
        return Environment.objects.none()
    return Environment.objects.select_related("owner")


def environment_for(request: HttpRequest, environment_id: int) -> Environment:
    environment = environments_for(request).filter(pk=environment_id).first()
    if environment is None:
        raise Http404
    return environment


def version_for(request: HttpRequest, environment_id: int, number: int) -> EnvironmentVersion:
    if request.user.is_authenticated:
        versions = EnvironmentVersion.objects.select_related("environment__owner", "created_by")
        if (version := versions.filter(environment=environment_id, number=number).first()) is not None:
            return version
    raise Http404


def newest_versions() -> QuerySet[EnvironmentVersion]:
    """The newest version of each environment, ordered by the environment's name."""
    newer = EnvironmentVersion.objects.filter(environment=OuterRef("environment"), number__gt=OuterRef("number"))
    versions = EnvironmentVersion.objects.filter(~Exists(newer)).select_related("environment")
    return versions.order_by("environment__name")


def offered_versions(chosen: object = None) -> QuerySet[EnvironmentVersion]:
    """Versions to offer for a new run: the newest of each active environment, and `chosen` (a pk from a form) if its
    environment is active."""
    active = EnvironmentVersion.objects.filter(environment__archived_at=None).select_related("environment")
    newer = EnvironmentVersion.objects.filter(environment=OuterRef("environment"), number__gt=OuterRef("number"))
    text = str(chosen or "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None
    return active.order_by("environment__name").filter(Q(~Exists(newer)) | Q(pk=number))


def free_name(name: str) -> str:
    """`name`, or the first free name with a number appended."""
    used = set(Environment.objects.values_list("name", flat=True))
    longest = 80 - len(" 999")
    names = [name, *(f"{name[:longest]} {n}" for n in range(2, len(used) + 3))]
    return next(name for name in names if name not in used)
