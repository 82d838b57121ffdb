"""The catalogue: datasets, reward configs, environments and hardware profiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from ninja import Field, File, Form, Router, Status
from ninja.files import UploadedFile

from controlplane import safe_yaml
from controlplane.accounts.models import User
from controlplane.accounts.roles import person
from controlplane.datasets import archiving, importing, looking, upload
from controlplane.datasets import queries as dataset_queries
from controlplane.datasets.errors import DatasetError, NameTaken
from controlplane.datasets.forms import UploadForm
from controlplane.datasets.mapping_forms import MappingForm
from controlplane.datasets.models import Dataset, DatasetVersion
from controlplane.environments import config_yaml as environment_yaml
from controlplane.environments import permissions as environment_permissions
from controlplane.environments import queries as environment_queries
from controlplane.hardware.profiles import profile_of
from controlplane.hardware.queries import profiles_for
from controlplane.rewards import code_check, config_yaml
from controlplane.rewards import queries as reward_queries
from runs.api import paging, shapes
from runs.api.access import OPERATE, READ, Problem
from runs.api.shapes import Answer, Asked, Cursor, Id, Limit, Listed, Value
from runs.new_run import importing as form_texts
from runs.new_run import prefill
from workers.contract import ContractError, to_dict

router = Router(tags=["catalogue"])


class Document(Asked):
    document: str = Field(description="YAML, as the export on its page writes it.")


class Mapping(Asked):
    values: dict[str, Value] = Field({}, description="Fields of the mapping: prompt, answer, test_cases, share, …")


class Archived(Asked):
    archived: bool


@router.get("datasets", auth=READ, response=Listed, url_name="v1_datasets", summary="List datasets")
def datasets(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """Each with its newest version."""
    found, after = paging.page(dataset_queries.datasets_for(request), cursor, limit)
    versions = DatasetVersion.objects.filter(dataset__in=found).select_related("dataset").order_by("number")
    newest = {version.dataset_id: version for version in versions.defer("report")}
    return {
        "items": [shapes.dataset_version(newest[each.pk]) for each in found if each.pk in newest],
        "next_cursor": after,
    }


@router.post("datasets/upload", auth=OPERATE, response={201: Answer}, url_name="v1_dataset_upload", summary="Upload")
def new_dataset(request: HttpRequest, file: File[UploadedFile], name: Annotated[str, Form(max_length=80)] = "") -> Any:
    """A new dataset. Its file is checked in the background; then it waits for its mapping."""
    return Status(201, {"item": _uploaded(request, None)})


@router.post(
    "datasets/{int:dataset_id}/upload",
    auth=OPERATE,
    response={201: Answer},
    url_name="v1_version_upload",
    summary="Upload",
)
def new_version(request: HttpRequest, dataset_id: Id, file: File[UploadedFile]) -> Any:
    """A new version of a dataset."""
    return Status(201, {"item": _uploaded(request, dataset_queries.dataset_for(request, dataset_id))})


@router.get("datasets/{int:dataset_id}", auth=READ, response=Listed, url_name="v1_dataset", summary="Its versions")
def dataset(request: HttpRequest, dataset_id: Id, cursor: Cursor = "", limit: Limit = 50) -> Any:
    versions = dataset_queries.dataset_for(request, dataset_id).versions.select_related("dataset")
    found, after = paging.page(versions.all(), cursor, limit)
    return {"items": [shapes.dataset_version(each) for each in found], "next_cursor": after}


@router.get(
    "datasets/{int:dataset_id}/{int:number}", auth=READ, response=Answer, url_name="v1_version", summary="A version"
)
def version(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    return {"item": shapes.dataset_version(dataset_queries.version_for(request, dataset_id, number))}


@router.get(
    "datasets/{int:dataset_id}/{int:number}/rows", auth=READ, response=Listed, url_name="v1_rows", summary="Its rows"
)
def rows(
    request: HttpRequest,
    dataset_id: Id,
    number: Id,
    cursor: Annotated[str, Field("", max_length=12)] = "",
    limit: Annotated[int, Field(20, ge=1, le=100)] = 20,
) -> Any:
    """In their order, long texts cut; only a version that is ready has rows."""
    if cursor and not (cursor.isascii() and cursor.isdecimal()):
        raise Problem(422, "This cursor can't be read.", where="cursor", fix="Send the next_cursor of the page before.")
    one = dataset_queries.version_for(request, dataset_id, number)
    try:
        page = looking.look(one, after=int(cursor or 0), limit=limit)
    except DatasetError as error:
        raise Problem(409, str(error), where="version") from None
    after = page["next"]
    return {"items": page["rows"], "next_cursor": "" if after is None else str(after)}


@router.post(
    "datasets/{int:dataset_id}/{int:number}/mapping",
    auth=OPERATE,
    response=Answer,
    url_name="v1_mapping",
    summary="Map",
)
def mapping(request: HttpRequest, dataset_id: Id, number: Id, payload: Mapping) -> Any:
    """Say which column is what, as on the page; the import begins. What isn't sent is as the page proposes it."""
    one, user = dataset_queries.version_for(request, dataset_id, number), person(request)
    if one.status != DatasetVersion.NEEDS_MAPPING:
        raise Problem(409, f"{one} doesn't wait for a mapping: it is {one.status}.", where="version")
    first = MappingForm(one, initial=MappingForm.initial_of(one), user=user)
    if unknown := set(payload.values) - set(first.fields):
        fix = f"Use: {', '.join(first.fields)}."
        raise Problem(422, f"A mapping has no field {min(unknown)[:80]}.", where="values", fix=fix)
    typed = {name: form_texts.sent(value) for name, value in payload.values.items() if value not in (None, False)}
    off = {name for name, value in payload.values.items() if value in (None, False)}
    kept = {name: value for name, value in prefill.as_sent(first).items() if name not in off}
    form = MappingForm(one, {**kept, **typed}, user=user)
    if not form.is_valid():
        field, errors = next(iter(form.errors.items()))
        raise Problem(422, " ".join(map(str, errors)), where=f"values.{field}")
    fields = form.cleaned_data
    importing.ask_for_import(
        one,
        form.mapping(leave_out=False),
        share=fields["share"],
        seed=fields["seed"],
        tokenizer=fields["tokenizer"],
        limit=fields["token_limit"],
    )
    return {"item": shapes.dataset_version(dataset_queries.version_for(request, dataset_id, number))}


@router.patch(
    "datasets/{int:dataset_id}/{int:number}",
    auth=OPERATE,
    response=Answer,
    url_name="v1_version_change",
    summary="Archive",
)
def change_version(request: HttpRequest, dataset_id: Id, number: Id, payload: Archived) -> Any:
    one = dataset_queries.version_for(request, dataset_id, number)
    (archiving.archive if payload.archived else archiving.unarchive)(one)
    return {"item": shapes.dataset_version(dataset_queries.version_for(request, dataset_id, number))}


@router.delete(
    "datasets/{int:dataset_id}/{int:number}",
    auth=OPERATE,
    response={204: None},
    url_name="v1_version_delete",
    summary="Delete",
)
def delete_version(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Only a version that no run was trained on."""
    try:
        archiving.delete_version(dataset_queries.version_for(request, dataset_id, number))
    except DatasetError as error:
        raise Problem(409, str(error), where="version", fix="Archive it instead.") from None
    return Status(204, None)


@router.get("rewards", auth=READ, response=Listed, url_name="v1_rewards", summary="List reward configs")
def rewards(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """The newest version of each."""
    found, after = paging.page(reward_queries.newest_versions(), cursor, limit)
    return {"items": [shapes.reward_version(each) for each in found], "next_cursor": after}


@router.get("rewards/{int:config_id}", auth=READ, response=Listed, url_name="v1_reward", summary="Its versions")
def reward(request: HttpRequest, config_id: Id, cursor: Cursor = "", limit: Limit = 50) -> Any:
    versions = reward_queries.config_for(request, config_id).versions.select_related("config")
    found, after = paging.page(versions.all(), cursor, limit)
    return {"items": [shapes.reward_version(each) for each in found], "next_cursor": after}


@router.get("rewards/{int:config_id}/{int:number}/yaml", auth=READ, url_name="v1_reward_yaml", summary="As YAML")
def reward_yaml(request: HttpRequest, config_id: Id, number: Id) -> HttpResponse:
    text = config_yaml.export(reward_queries.version_for(request, config_id, number))
    return HttpResponse(text, content_type="application/yaml; charset=utf-8")


@router.post("rewards", auth=OPERATE, response={201: Answer}, url_name="v1_reward_new", summary="Make a reward config")
def new_reward(request: HttpRequest, payload: Document) -> Any:
    """From YAML. Custom code needs the admin role and passes the same checks as in the editor."""
    user = person(request)
    editor = _read(config_yaml.read, payload)
    refused = {} if _wrong(editor) else code_check.problems([form.spec() for form in editor.components], user)
    for place, reason in refused.items():
        editor.components[place].refuse(reason)
    if problem := _wrong(editor):
        raise Problem(403 if refused else 422, problem, where="document")
    return Status(201, {"item": shapes.reward_version(_saved(editor, user, "reward config"))})


@router.get("environments", auth=READ, response=Listed, url_name="v1_environments", summary="List environments")
def environments(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """The newest version of each."""
    found, after = paging.page(environment_queries.newest_versions(), cursor, limit)
    return {"items": [shapes.environment_version(each) for each in found], "next_cursor": after}


@router.get(
    "environments/{int:environment_id}", auth=READ, response=Listed, url_name="v1_environment", summary="Its versions"
)
def environment(request: HttpRequest, environment_id: Id, cursor: Cursor = "", limit: Limit = 50) -> Any:
    versions = environment_queries.environment_for(request, environment_id).versions.select_related("environment")
    found, after = paging.page(versions.all(), cursor, limit)
    return {"items": [shapes.environment_version(each) for each in found], "next_cursor": after}


@router.post(
    "environments", auth=OPERATE, response={201: Answer}, url_name="v1_environment_new", summary="Make an environment"
)
def new_environment(request: HttpRequest, payload: Document) -> Any:
    """From YAML. Custom tools need the admin role."""
    user = person(request)
    editor = _read(environment_yaml.read, payload)
    if problem := _wrong(editor):
        raise Problem(422, problem, where="document")
    if not all(environment_permissions.may_use(user, form.spec()) for form in editor.parts):
        raise Problem(403, environment_permissions.REFUSED, where="document")
    return Status(201, {"item": shapes.environment_version(_saved(editor, user, "environment"))})


@router.get("profiles", auth=READ, response=Listed, url_name="v1_profiles", summary="List hardware profiles")
def profiles(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    found, after = paging.page(profiles_for(request), cursor, limit)
    return {"items": [_profile(each) for each in found], "next_cursor": after}


def _uploaded(request: HttpRequest, dataset: Dataset | None) -> dict[str, Any]:
    if stopped := upload.problem(request):
        raise Problem(413, stopped, where="file")
    form = UploadForm(request.POST, request.FILES, dataset=dataset)
    if not form.is_valid():
        field, errors = next(iter(form.errors.items()))
        raise Problem(422, " ".join(map(str, errors)), where=field)
    name, file = dataset.name if dataset else form.cleaned_data["name"], form.cleaned_data["file"]
    try:
        version = importing.create_from_upload(person(request), name, file, file.name, new=dataset is None)
    except NameTaken as error:
        raise Problem(409, str(error), where="name") from None
    except DatasetError as error:
        raise Problem(409, str(error), where="file") from None
    return shapes.dataset_version(version)


def _profile(row: Any) -> dict[str, Any]:
    answer = {"id": row.pk, "name": row.name, "hardware": row.spec, "problem": ""}
    try:
        answer["hardware"] = to_dict(profile_of(row).spec)
    except ContractError as error:
        answer["problem"] = str(error)
    return answer


def _read(read: Callable[[bytes], Any], payload: Document) -> Any:
    """The editor that the YAML fills, of rewards or of an environment."""
    try:
        return read(payload.document.encode(errors="replace"))
    except safe_yaml.YamlRefused as error:
        raise Problem(422, str(error), where="document") from None


def _wrong(editor: Any) -> str:
    """An editor's first mistake, of rewards or of an environment; "": none."""
    if editor.problem:
        return str(editor.problem)
    return next((f"{what}: {errors}" if what else str(errors) for _, what, errors in editor.wrong), "")


def _saved(editor: Any, user: User, what: str) -> Any:
    try:
        with transaction.atomic():
            saved, _ = editor.save(user)
    except IntegrityError:
        taken = f"There is a {what} of this name already."
        raise Problem(409, taken, where="name", fix="Choose another name.") from None
    return saved
