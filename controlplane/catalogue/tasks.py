"""Celery tasks of the catalogue, which call the worker's functions; beat sends those that reconcile."""

import logging

import redis
from django.utils import timezone

from controlplane.catalogue.datasets import storing, worker
from controlplane.catalogue.datasets.corpora import building
from controlplane.catalogue.datasets.models import CorpusVersion, DatasetVersion
from controlplane.catalogue.datasets.work_queue import CORPUS_TASK, DATASET_TASK, REFERENCES_TASK
from controlplane.catalogue.joining import host_redis
from controlplane.catalogue.references import worker as references_worker
from controlplane.celery import app

log = logging.getLogger(__name__)


@app.task(name=DATASET_TASK)  # type: ignore[untyped-decorator]  # celery has no types
def validate_version(version_id: int) -> None:
    version = DatasetVersion.objects.filter(pk=version_id).first()
    if version is not None:  # else deleted while the message waited
        worker.process(version)


@app.task(name="datasets.sweep")  # type: ignore[untyped-decorator]
def reconcile_datasets() -> None:
    worker.reconcile()
    building.reconcile()


@app.task(name="datasets.store")  # type: ignore[untyped-decorator]
def reconcile_store() -> None:
    storing.reconcile(timezone.now())


@app.task(name=CORPUS_TASK)  # type: ignore[untyped-decorator]
def build_corpus(version_id: int) -> None:
    version = CorpusVersion.objects.filter(pk=version_id).select_related("corpus", "dataset_version").first()
    if version is not None:
        building.build(version)


@app.task(name=REFERENCES_TASK)  # type: ignore[untyped-decorator]
def score_references() -> None:
    references_worker.score_waiting()


@app.task(name="joining.tend")  # type: ignore[untyped-decorator]
def reconcile_redis_users() -> None:
    try:
        host_redis.reconcile()
    except redis.RedisError as error:
        log.warning("the hosts' users in Redis could not be checked: %s", error)
