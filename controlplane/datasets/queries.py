"""The only way a view obtains a dataset or a version: what a person may not see is not found."""

from __future__ import annotations

from django.db.models import Count, F, OuterRef, QuerySet, Subquery
from django.http import Http404, HttpRequest

from controlplane.datasets.models import Dataset, DatasetVersion


def datasets_for(request: HttpRequest) -> QuerySet[Dataset]:
    """Everybody who is signed in sees every dataset."""
    return Dataset.objects.all() if request.user.is_authenticated else Dataset.objects.none()


def dataset_for(request: HttpRequest, dataset_id: int) -> Dataset:
    dataset = datasets_for(request).filter(pk=dataset_id).first()
    if dataset is None:
        raise Http404
    return dataset


def version_for(request: HttpRequest, dataset_id: int, number: int | None = None) -> DatasetVersion:
    """A version by its number; the newest without one."""
    versions = dataset_for(request, dataset_id).versions.select_related("dataset")
    version = versions.filter(number=number).first() if number else versions.first()
    if version is None:
        raise Http404
    return version


def ready_versions(request: HttpRequest) -> QuerySet[DatasetVersion]:
    """What a run can be trained on, or a reward tried on. Not what was put away, which runs keep all the same."""
    versions = DatasetVersion.objects.filter(dataset__in=datasets_for(request), status=DatasetVersion.READY)
    offered = versions.filter(archived_at=None)
    return offered.select_related("dataset").defer("report").order_by("dataset__name", "-number")


def listed(request: HttpRequest) -> list[DatasetVersion]:
    """The newest version of each dataset (one that was put away only where all were), with `run_count` over all."""
    own = DatasetVersion.objects.filter(dataset=OuterRef("dataset"))
    newest = own.order_by(F("archived_at").asc(nulls_first=True), "-number").values("pk")[:1]
    versions = DatasetVersion.objects.filter(dataset__in=datasets_for(request), pk=Subquery(newest))
    return list(
        versions.select_related("dataset", "dataset__owner")
        .defer("report")
        .annotate(run_count=Count("dataset__versions__runs", distinct=True))
        .order_by("dataset__name")
    )
