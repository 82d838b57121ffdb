"""Adding datasets and versions of them: files, rows, the hub, the server's folders, tasks of reasoning-gym."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, File, Form, Status
from ninja.files import UploadedFile

from controlplane.catalogue.datasets import queries as dataset_queries
from controlplane.catalogue.datasets.errors import DatasetError, NameTaken
from controlplane.catalogue.datasets.models import Dataset
from controlplane.catalogue.datasets.pages import adding_views
from controlplane.catalogue.datasets.pages.adding_views import AddingForm
from controlplane.catalogue.datasets.pages.forms import (
    NAME_LENGTH,
    HubForm,
    PathForm,
    RowsForm,
    TasksForm,
    UploadForm,
)
from controlplane.catalogue.datasets.sources import MOST_FAMILIES
from controlplane.platform.accounts.roles import person
from controlplane.platform.http import upload
from runs.api import form_values, shapes
from runs.api.access import Problem, Router
from runs.api.shapes import Id, ItemResponse, RequestBody
from workers.packages.reasoning import MOST_ROWS, MOST_SEED

router = Router(tags=["datasets"])


class NamedDatasetBody(RequestBody):
    name: str = Field("", max_length=NAME_LENGTH, description="Of a new dataset. Empty: as on the page.")


class RowsDatasetBody(NamedDatasetBody):
    rows: str = Field(max_length=2**24, description="JSON Lines, a JSON list, or CSV with a header line.")


class HubDatasetBody(NamedDatasetBody):
    id: str = Field(max_length=200, description="owner/name on the hub.")
    config: str = Field("", max_length=100, description="Also called subset. Empty: the default one.")
    split: str = Field("train", max_length=100)
    revision: str = Field("main", max_length=200, description="A branch, a tag or a commit.")


class PathDatasetBody(NamedDatasetBody):
    path: str = Field(max_length=4000, description="A file, or a folder of files of one kind.")


class TasksDatasetBody(NamedDatasetBody):
    families: list[Annotated[str, Field(max_length=80)]] = Field(
        min_length=1, max_length=MOST_FAMILIES, description="Of reasoning-gym, such as leg_counting."
    )
    rows: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 1000
    level: Annotated[int, Field(ge=0, le=100)] = Field(0, description="Difficulty. 0: the families' own settings.")
    seed: Annotated[int, Field(ge=0, le=MOST_SEED)] = 0


@router.post("datasets/upload", response={201: ItemResponse})
def new_dataset(request: HttpRequest, file: File[UploadedFile], name: Annotated[str, Form(max_length=80)] = "") -> Any:
    """Upload a dataset. A new dataset. Its file is checked in the background; then it waits for its mapping."""
    return Status(201, {"item": _uploaded(request, None)})


@router.post("datasets/{int:dataset_id}/upload", response={201: ItemResponse})
def new_version(request: HttpRequest, dataset_id: Id, file: File[UploadedFile]) -> Any:
    """Upload a version of a dataset. A new version of a dataset."""
    return Status(201, {"item": _uploaded(request, dataset_queries.dataset_for(request, dataset_id))})


@router.post("datasets/rows", response={201: ItemResponse})
def typed_dataset(request: HttpRequest, payload: RowsDatasetBody) -> Any:
    """Add a dataset of rows. A new dataset of rows in the body."""
    return _added(request, None, RowsForm, payload)


@router.post("datasets/hub", response={201: ItemResponse})
def hub_dataset(request: HttpRequest, payload: HubDatasetBody) -> Any:
    """Add a dataset from the hub. A new dataset from the hub, fetched in the background."""
    return _added(request, None, HubForm, payload)


@router.post("datasets/path", response={201: ItemResponse})
def path_dataset(request: HttpRequest, payload: PathDatasetBody) -> Any:
    """Add a dataset from a path. A new dataset from a file or a folder of the server, inside its allowed folders."""
    return _added(request, None, PathForm, payload)


@router.post("datasets/tasks", response={201: ItemResponse})
def tasks_dataset(request: HttpRequest, payload: TasksDatasetBody) -> Any:
    """Add a dataset of made tasks. A new dataset of tasks that reasoning-gym makes."""
    return _added(request, None, TasksForm, payload)


@router.post("datasets/{int:dataset_id}/rows", response={201: ItemResponse})
def rows_version(request: HttpRequest, dataset_id: Id, payload: RowsDatasetBody) -> Any:
    """Add a version of rows. A new version of a dataset, which keeps its name."""
    return _added(request, dataset_id, RowsForm, payload)


@router.post("datasets/{int:dataset_id}/hub", response={201: ItemResponse})
def hub_version(request: HttpRequest, dataset_id: Id, payload: HubDatasetBody) -> Any:
    """Add a version from the hub. A new version of a dataset, which keeps its name."""
    return _added(request, dataset_id, HubForm, payload)


@router.post("datasets/{int:dataset_id}/path", response={201: ItemResponse})
def path_version(request: HttpRequest, dataset_id: Id, payload: PathDatasetBody) -> Any:
    """Add a version from a path. A new version of a dataset, which keeps its name."""
    return _added(request, dataset_id, PathForm, payload)


@router.post("datasets/{int:dataset_id}/tasks", response={201: ItemResponse})
def tasks_version(request: HttpRequest, dataset_id: Id, payload: TasksDatasetBody) -> Any:
    """Add a version of made tasks. A new version of a dataset, which keeps its name."""
    return _added(request, dataset_id, TasksForm, payload)


def _uploaded(request: HttpRequest, dataset: Dataset | None) -> dict[str, Any]:
    if stopped := upload.problem(request):
        raise Problem(413, stopped, where="file")
    form = form_values.checked(UploadForm(request.POST, request.FILES, dataset=dataset))
    return _made(request, form, dataset, where="file")


def _added(
    request: HttpRequest,
    dataset_id: int | None,
    way: type[RowsForm | HubForm | PathForm | TasksForm],
    payload: RequestBody,
) -> Status[dict[str, Any]]:
    dataset = dataset_queries.dataset_for(request, dataset_id) if dataset_id is not None else None
    first, values = way(dataset=dataset), payload.dict()
    if dataset is not None and values.pop("name", ""):
        raise Problem(422, "A version has its dataset's name.", where="name", fix="Leave it out.")
    form = form_values.filled(first, lambda data: way(data, dataset=dataset), values)
    return Status(201, {"item": _made(request, form, dataset, where="source")})


def _made(request: HttpRequest, form: AddingForm, dataset: Dataset | None, *, where: str) -> dict[str, Any]:
    name = dataset.name if dataset else form.cleaned_data["name"]
    try:
        version = adding_views.created(person(request), form, name, new=dataset is None)
    except NameTaken as error:
        raise Problem(409, str(error), where="name") from None
    except DatasetError as error:
        raise Problem(409, str(error), where=where) from None
    return shapes.dataset_version(version)
