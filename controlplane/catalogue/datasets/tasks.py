"""Celery's side of the datasets: short calls into what settles versions."""

from __future__ import annotations

from django.utils import timezone

from controlplane.catalogue.datasets import storing, worker
from controlplane.catalogue.datasets.corpora import making
from controlplane.catalogue.datasets.models import CorpusVersion, DatasetVersion
from controlplane.catalogue.datasets.work_queue import TASK
from controlplane.celery import app


@app.task(name=TASK)  # type: ignore[untyped-decorator]  # celery has no types
def validate_version(version_id: int) -> None:
    version = DatasetVersion.objects.filter(pk=version_id).first()
    if version is not None:  # else deleted while the message waited
        worker.work(version)


@app.task(name="datasets.sweep")  # type: ignore[untyped-decorator]
def sweep() -> None:
    worker.sweep()
    making.sweep()


@app.task(name="datasets.store")  # type: ignore[untyped-decorator]
def store() -> None:
    storing.tend(timezone.now())


@app.task(name=making.TASK)  # type: ignore[untyped-decorator]
def make_corpus(version_id: int) -> None:
    version = CorpusVersion.objects.filter(pk=version_id).select_related("corpus", "dataset_version").first()
    if version is not None:
        making.work(version)
