"""Models that runs saved, and base models on hosts. Views get a saved model only through `model_for`."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Page, Paginator
from django.db.models import Max, Q
from django.http import Http404, HttpRequest

from controlplane.catalogue.hardware import inventory
from controlplane.catalogue.hardware.models import Host
from runs.engine import checkpoints, queries
from runs.engine.checkpoints import Checkpoint
from runs.engine.models import Run
from runs.engine.records import RunEvent
from workers.contract.wire.names import EventKind

RUNS_PER_PAGE = 20


@dataclass(frozen=True)
class SavedModel:
    """A checkpoint as a model, with its lineage."""

    checkpoint: Checkpoint

    @property
    def run(self) -> Run:
        return self.checkpoint.run

    @property
    def name(self) -> str:
        return self.checkpoint.name

    @property
    def base(self) -> str:
        return str(self.run.spec["model"]["path"])

    @property
    def base_name(self) -> str:
        return self.base.rstrip("/").rpartition("/")[2]

    @property
    def host(self) -> Host | None:
        return self.checkpoint.event.attempt.host

    @property
    def bytes(self) -> int | None:
        size: int | None = self.checkpoint.event.data.get("bytes")
        return size

    @property
    def trained_by(self) -> Run:
        return self.run.source or self.run

    @property
    def as_model(self) -> str:
        """The query string of a New run page with this model, or "" for an adapter, or if its files can't be used."""
        checkpoint, run = self.checkpoint, self.trained_by
        if checkpoint.is_adapter or not checkpoint.usable or not checkpoint.path:
            return ""
        choices = {
            "model": checkpoint.path,
            "host": checkpoint.event.attempt.host_id,
            "dataset_version": run.dataset_version_id,
            "reward_version": run.reward_version_id,
            "profile": run.profile_id,
        }
        return urlencode({name: value for name, value in choices.items() if value})


@dataclass(frozen=True)
class RunModels:
    run: Run
    models: list[SavedModel]


@dataclass(frozen=True)
class BaseModel:
    path: str
    """The model's folder, or its id on the Hub."""
    host: Host
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]


def model_for(request: HttpRequest, event_id: int) -> SavedModel:
    """Find the model of a checkpoint event; every signed-in user may see every model. Raises Http404 if there is none,
    and Deleted if its run is in the trash."""
    event = RunEvent.objects.filter(pk=event_id, kind=EventKind.CHECKPOINT).first()
    run = queries.run_for(request, event.run_id) if event else None
    checkpoint = checkpoints.find(run, str(event_id)) if run else None
    if checkpoint is None:
        raise Http404(f"There is no model {event_id}.")
    return SavedModel(checkpoint)


def page_of_saved(request: HttpRequest, *, text: str, page: int) -> tuple[Page[Any], list[RunModels]]:
    """List a page of unarchived runs with models, newest model first. `text` filters by name, id or base model."""
    condition = Q(name__icontains=text) | Q(pk=text) | Q(spec__model__path__icontains=text) if text else Q()
    with_models = RunEvent.objects.filter(kind=EventKind.CHECKPOINT).values("run_id")
    runs = queries.runs_for(request).select_related("owner", "dataset_version__dataset", "source")
    runs = runs.filter(condition, pk__in=with_models, archived_at=None)
    runs = runs.annotate(saved_at=Max("events__at", filter=Q(events__kind=EventKind.CHECKPOINT))).order_by("-saved_at")
    page_of_runs = Paginator(runs, RUNS_PER_PAGE).get_page(page)
    return page_of_runs, [RunModels(run, _remaining_models(run)) for run in page_of_runs]


def base_models(text: str) -> list[BaseModel]:
    """List the models that hosts announce with a path that contains `text`, ignoring case."""
    return [
        BaseModel(entry["model"], host, entry)
        for host in Host.objects.all()
        for entry in inventory.clean(host.inventory).get("model_facts") or ()
        if text.lower() in entry["model"].lower()
    ]


def siblings(model: SavedModel) -> list[SavedModel]:
    """List the run's other remaining models, newest first."""
    event = model.checkpoint.event
    return [sibling for sibling in _remaining_models(model.run) if sibling.checkpoint.event != event]


def _remaining_models(run: Run) -> list[SavedModel]:
    return [SavedModel(checkpoint) for checkpoint in checkpoints.of_run(run) if checkpoint.usable]
