"""New datasets and versions: from files, rows, the hub, the server's folders or reasoning-gym tasks."""

# No `annotations` from __future__: ninja can't resolve the annotations of routes that are defined in a function.

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, File, Form, Status
from ninja.files import UploadedFile

from controlplane.catalogue.datasets import queries as dataset_queries
from controlplane.catalogue.datasets.errors import DatasetError, NameTaken
from controlplane.catalogue.datasets.models import Dataset
from controlplane.catalogue.datasets.pages.forms import (
    NAME_LENGTH,
    AddingForm,
    HubForm,
    PathForm,
    RowsForm,
    TasksForm,
    UploadForm,
)
from controlplane.catalogue.datasets.sources import MAX_FAMILIES
from controlplane.platform.accounts.roles import person
from controlplane.platform.http import upload
from runs.api import form_values, shapes
from runs.api.access import Problem, Router, refusing
from runs.api.shapes import Id, ItemResponse, RequestBody
from workers.packages.reasoning import MAX_ROWS, MAX_SEED

router = Router(tags=["datasets"])
SourceForm = RowsForm | HubForm | PathForm | TasksForm


class NamedDatasetBody(RequestBody):
    name: str = Field(
        "",
        max_length=NAME_LENGTH,
        description="The new dataset's name. If empty, chosen as on the page.",
    )


class RowsDatasetBody(NamedDatasetBody):
    rows: str = Field(max_length=2**24, description="JSON Lines, a JSON list, or CSV with a header row.")


class HubDatasetBody(NamedDatasetBody):
    id: str = Field(max_length=200, description="owner/name on the hub.")
    config: str = Field("", max_length=100, description="The config, also called subset. If empty, the default.")
    split: str = Field("train", max_length=100)
    revision: str = Field("main", max_length=200, description="A branch, a tag or a commit.")


class PathDatasetBody(NamedDatasetBody):
    path: str = Field(max_length=4000, description="A file, or a folder of files of the same type.")


class TasksDatasetBody(NamedDatasetBody):
    families: list[Annotated[str, Field(max_length=80)]] = Field(
        min_length=1, max_length=MAX_FAMILIES, description="Task families of reasoning-gym, such as leg_counting."
    )
    rows: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 1000
    level: Annotated[int, Field(ge=0, le=100)] = Field(0, description="Difficulty; 0 means the families' defaults.")
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0


@router.post("datasets/upload", response={201: ItemResponse})
def new_dataset(request: HttpRequest, file: File[UploadedFile], name: Annotated[str, Form(max_length=80)] = "") -> Any:
    """Upload a dataset. The file is checked in the background; then the version waits for its mapping."""
    return Status(201, {"item": _upload(request, None)})


@router.post("datasets/{int:dataset_id}/upload", response={201: ItemResponse})
def new_version(request: HttpRequest, dataset_id: Id, file: File[UploadedFile]) -> Any:
    """Upload a new version of a dataset."""
    return Status(201, {"item": _upload(request, dataset_queries.dataset_for(request, dataset_id))})


def _upload(request: HttpRequest, dataset: Dataset | None) -> dict[str, Any]:
    if problem := upload.problem(request):
        raise Problem(413, problem, where="file")
    form = form_values.validate(UploadForm(request.POST, request.FILES, dataset=dataset))
    return _create_version(request, form, dataset, where="file")


def _add(
    request: HttpRequest, dataset_id: int | None, form_class: type[SourceForm], payload: RequestBody
) -> Status[dict[str, Any]]:
    dataset = dataset_queries.dataset_for(request, dataset_id) if dataset_id is not None else None
    values = payload.dict()
    if dataset is not None and values.pop("name", ""):
        raise Problem(422, "A version has its dataset's name.", where="name", fix="Omit the name.")
    bound: Callable[..., SourceForm] = partial(form_class, dataset=dataset)
    form = form_values.fill(bound, values)
    return Status(201, {"item": _create_version(request, form, dataset, where="source")})


def _create_version(request: HttpRequest, form: AddingForm, dataset: Dataset | None, *, where: str) -> dict[str, Any]:
    name = dataset.name if dataset else form.cleaned_data["name"]
    with refusing(DatasetError, where=where), refusing(NameTaken, where="name"):
        version = form.create(person(request), name, must_be_new=dataset is None)
    return shapes.dataset_version(version)


def _add_routes(path: str, form: type[SourceForm], body: type[NamedDatasetBody], source: str, about: str) -> None:

    def dataset(request: HttpRequest, payload: body) -> Any:  # type: ignore[valid-type]  # ninja reads it
        return _add(request, None, form, payload)

    def version(request: HttpRequest, dataset_id: Id, payload: body) -> Any:  # type: ignore[valid-type]
        return _add(request, dataset_id, form, payload)

    dataset.__name__, version.__name__ = f"{path}_dataset", f"{path}_version"
    dataset.__doc__ = f"Add a dataset {source}. {about}"
    version.__doc__ = f"Add a version {source} to a dataset. {about}"
    router.post(f"datasets/{path}", response={201: ItemResponse})(dataset)
    router.post(f"datasets/{{int:dataset_id}}/{path}", response={201: ItemResponse})(version)


_add_routes("rows", RowsForm, RowsDatasetBody, "from rows", "The body contains the rows.")
_add_routes("hub", HubForm, HubDatasetBody, "from the hub", "It is fetched in the background.")
_add_routes("path", PathForm, PathDatasetBody, "from a path", "The path must be in an allowed folder of the server.")
_add_routes("tasks", TasksForm, TasksDatasetBody, "of generated tasks", "reasoning-gym generates the tasks.")
