"""Access to datasets and versions; views get them only from here."""

from django.db.models import Count, F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Lower
from django.db.models.lookups import IsNull
from django.http import Http404, HttpRequest

from controlplane.catalogue.datasets.models import Dataset, DatasetVersion

_NAMED_VERSIONS = 20
"""Number of the newest versions whose sources and tags are suggested."""
_SUGGESTED_NAMES = 200


def datasets_for(request: HttpRequest) -> QuerySet[Dataset]:
    """Select all datasets if a user is signed in, otherwise none."""
    return Dataset.objects.all() if request.user.is_authenticated else Dataset.objects.none()


def dataset_for(request: HttpRequest, dataset_id: int) -> Dataset:
    dataset = datasets_for(request).filter(pk=dataset_id).first()
    if dataset is None:
        raise Http404
    return dataset


def version_for(request: HttpRequest, dataset_id: int, number: int | None = None) -> DatasetVersion:
    """Return the version of this number, by default the newest one. Raises Http404 if there is none."""
    versions = dataset_for(request, dataset_id).versions.select_related("dataset")
    version = versions.filter(number=number).first() if number else versions.first()
    if version is None:
        raise Http404
    return version


def ready_versions(request: HttpRequest) -> QuerySet[DatasetVersion]:
    """Select the versions to offer for training and for trying rewards: those that are ready and not archived."""
    versions = DatasetVersion.objects.filter(dataset__in=datasets_for(request), status=DatasetVersion.READY)
    unarchived_versions = versions.filter(archived_at=None)
    return unarchived_versions.select_related("dataset").defer("report").order_by("dataset__name", "-number")


def newest_versions(request: HttpRequest) -> list[DatasetVersion]:
    """List each dataset's newest unarchived version, or its newest if all are archived, with `run_count` over
    all versions."""
    dataset_versions = DatasetVersion.objects.filter(dataset=OuterRef("dataset"))
    newest = dataset_versions.order_by(IsNull(F("archived_at"), True).desc(), "-number").values("pk")[:1]
    versions = DatasetVersion.objects.filter(dataset__in=datasets_for(request), pk=Subquery(newest))
    return list(
        versions.select_related("dataset", "dataset__owner")
        .defer("report")
        .annotate(run_count=Count("dataset__versions__runs", distinct=True))
        .order_by(Lower("dataset__name"))
    )


def known_row_names(request: HttpRequest) -> list[str]:
    """List names that rows go by, to suggest: those of datasets, then sources and tags of the newest versions."""
    newest = DatasetVersion.objects.filter(dataset__in=datasets_for(request), status=DatasetVersion.READY)
    statistics = "report__mapped__statistics__name_sets"
    sets = newest.order_by("-pk").values_list(statistics, flat=True)[:_NAMED_VERSIONS]
    names = {name for entries in sets for entry in entries or () for name in entry["names"]}
    datasets = datasets_for(request).order_by(Lower("name")).values_list("name", flat=True)
    return list(dict.fromkeys((*datasets[:_SUGGESTED_NAMES], *sorted(names)[:_SUGGESTED_NAMES])))
