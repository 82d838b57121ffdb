"""Reward configs and environments: versions, YAML, archiving, renaming, duplicates, deleting."""

# No `annotations` from __future__: ninja can't resolve the annotations of routes that are defined in a function.

from collections.abc import Callable
from typing import Annotated, Any

from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from ninja import Field, Path, Status

from controlplane.catalogue.environments import config_yaml as environment_yaml
from controlplane.catalogue.environments import saving as environment_saving
from controlplane.catalogue.environments.models import Environment, EnvironmentVersion
from controlplane.catalogue.rewards import code_check, config_yaml
from controlplane.catalogue.rewards import saving as reward_saving
from controlplane.catalogue.rewards.models import RewardConfig, RewardVersion
from controlplane.catalogue.versioned import saving
from controlplane.catalogue.versioned.models import Version
from controlplane.catalogue.versioned.queries import item_for, newest_versions, version_for
from controlplane.platform import safe_yaml
from controlplane.platform.accounts.models import User
from controlplane.platform.accounts.roles import person
from runs.api import shapes
from runs.api.access import Problem, Router, refusing
from runs.api.routes import trash_routes
from runs.api.shapes import Cursor, Id, ItemResponse, Limit, PageResponse, RequestBody, ResponseBody
from runs.engine.trash.kinds import KINDS

router = Router(tags=["rewards and environments"])
Shape = Callable[[Any], dict[str, Any]]
Save = Callable[[User, "YamlDocument", Any], tuple[Any, bool]]
"""Function that saves a document as a version of an item, of a new one for None. Returns it, and whether it is new."""


class YamlDocument(RequestBody):
    document: str = Field(description="YAML, as exported on the object's page.")


class NewVersion(YamlDocument):
    note: str = Field("", max_length=200, description="A note about the change.")
    based_on: Id | None = Field(
        None,
        description="The number of the version that you changed: 409 if there is a newer one. If null, no check.",
    )


class ItemChange(RequestBody):
    archived: bool | None = None
    name: str | None = Field(None, max_length=200, description="The new name. Links use ids and keep working.")


class SaveResponse(ResponseBody):
    item: dict[str, Any]
    """The version, as in the list of versions."""
    new: bool
    """false if the document equals the newest version, so no version was created."""


def _route(version: type[Version], verb: str, path: str = "", **options: Any) -> Callable[[Callable[..., Any]], object]:
    """Return a decorator that registers a route for a kind of item and fills in {one} and {many} in its docstring."""
    kind = version.kind
    singular = f"{'an' if kind.name[0] in 'aeiou' else 'a'} {kind.name}"

    def register(view: Callable[..., Any]) -> object:
        view.__doc__ = (view.__doc__ or "").format(one=singular, many=f"{kind.name}s")
        view.__name__ = f"{view.__name__}_{kind.slug}"
        item_path = path.replace("ITEM", f"/{{int:{kind.item}_id}}")
        return router.api_operation([verb], f"{kind.slug}s{item_path}", **options)(view)

    return register


def _add_reading(version: type[Any], shape: Shape, export: Callable[[Any], str]) -> None:
    ItemId = Annotated[int, Path(alias=f"{version.kind.item}_id", ge=1, le=2**53)]

    @_route(version, "GET", response=PageResponse)
    def listed(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
        """List {many}, each with its newest version."""
        return shapes.page(newest_versions(version), shape, cursor, limit)

    @_route(version, "GET", "ITEM", response=PageResponse)
    def versions(request: HttpRequest, item_id: ItemId, cursor: Cursor = "", limit: Limit = 50) -> Any:
        """List the versions of {one}."""
        rows = item_for(version.items(), request, item_id).versions.select_related(version.kind.item)
        return shapes.page(rows, shape, cursor, limit)

    @_route(version, "GET", "ITEM/{int:number}/yaml")
    def as_yaml(request: HttpRequest, item_id: ItemId, number: Id) -> HttpResponse:
        """Read a version of {one} as YAML."""
        text = export(version_for(version, request, item_id, number))
        return HttpResponse(text, content_type="application/yaml; charset=utf-8")


def _add_saving(version: type[Any], shape: Shape, save: Save, clone: Callable[[Any, User], Any]) -> None:
    ItemId = Annotated[int, Path(alias=f"{version.kind.item}_id", ge=1, le=2**53)]

    @_route(version, "POST", response={201: ItemResponse})
    def create(request: HttpRequest, payload: YamlDocument) -> Any:
        """Create {one} from YAML.

        Custom code and tools require the admin role and must pass the same checks as in the editor."""
        return Status(201, {"item": shape(save(person(request), payload, None)[0])})

    @_route(version, "POST", "ITEM", response={200: SaveResponse, 201: SaveResponse})
    def save_version(request: HttpRequest, item_id: ItemId, payload: NewVersion) -> Any:
        """Save a new version of {one} from YAML.

        The YAML also contains the name and the description. Runs keep the version that they have."""
        saved_version, is_new = save(person(request), payload, item_for(version.items(), request, item_id))
        return Status(201 if is_new else 200, {"item": shape(saved_version), "new": is_new})

    @_route(version, "POST", "ITEM/{int:number}/duplicate", response={201: ItemResponse})
    def duplicate(request: HttpRequest, item_id: ItemId, number: Id) -> Any:
        """Duplicate a version of {one} as a new item, with the next free name."""
        copy = clone(version_for(version, request, item_id, number), person(request))
        return Status(201, {"item": shape(copy)})


def _add_managing(version: type[Any], shape: Shape) -> None:
    ItemId = Annotated[int, Path(alias=f"{version.kind.item}_id", ge=1, le=2**53)]
    slug, item_model = version.kind.slug, version.items()

    @_route(version, "PATCH", "ITEM", response=ItemResponse)
    def change(request: HttpRequest, item_id: ItemId, payload: ItemChange) -> Any:
        """Archive, unarchive or rename {one}. What is archived isn't offered for new runs."""
        item = item_for(item_model, request, item_id)
        if payload.name is not None:
            trash_routes.rename(KINDS[slug], item, payload.name, person(request))
        if payload.archived is not None:
            saving.set_archived(item, payload.archived)
        return {"item": shape(item_for(item_model, request, item_id).newest())}

    @_route(version, "DELETE", "ITEM", response={204: None})
    def delete(request: HttpRequest, item_id: ItemId) -> Any:
        """Delete {one} with all its versions.

        Runs keep copies of what they use. It can be restored for a while: see /deleted."""
        item_for(item_model, request, item_id)
        return trash_routes.mark(KINDS[slug], item_id, person(request))


def _save_reward(user: User, payload: YamlDocument, config: RewardConfig | None) -> tuple[Any, bool]:
    _check_base(payload, config)
    editor = _read(lambda text: config_yaml.read(text, config), payload)
    refusals = {} if _first_error(editor) else code_check.problems([form.spec() for form in editor.rows], user)
    for index, reason in refusals.items():
        editor.rows[index].refuse(reason)
    if problem := _first_error(editor):
        raise Problem(403 if refusals else 422, problem, where="document")
    editor.form.cleaned_data["note"] = _note(payload)
    return _save_item(editor, user, "reward config")


def _save_environment(user: User, payload: YamlDocument, environment: Environment | None) -> tuple[Any, bool]:
    _check_base(payload, environment)
    editor = _read(lambda text: environment_yaml.read(text, environment), payload)
    if problem := _first_error(editor):
        raise Problem(422, problem, where="document")
    if not all(saving.may_use_part(EnvironmentVersion, user, form.spec()) for form in editor.rows):
        raise Problem(403, saving.code_refused(EnvironmentVersion), where="document")
    editor.form.cleaned_data["note"] = _note(payload)
    return _save_item(editor, user, "environment")


def _check_base(payload: YamlDocument, item: RewardConfig | Environment | None) -> None:
    if item is None:
        return
    if item.archived_at:
        raise Problem(409, f"{item.name} is archived.", where="archived", fix="PATCH it with archived: false first.")
    newest_number, base = item.newest().number, payload.based_on if isinstance(payload, NewVersion) else None
    if base is not None and base != newest_number:
        fix = f"Check version {newest_number}, then send based_on: {newest_number}."
        raise Problem(409, f"Version {newest_number} was saved since version {base}.", where="based_on", fix=fix)


def _note(payload: YamlDocument) -> str:
    return payload.note.replace("\0", "") if isinstance(payload, NewVersion) else ""


def _read(read: Callable[[bytes], Any], payload: YamlDocument) -> Any:
    with refusing(safe_yaml.YamlRefused, where="document", status=422):
        return read(payload.document.encode(errors="replace"))


def _first_error(editor: Any) -> str:
    if editor.problem:
        return str(editor.problem)
    return next((f"{label}: {errors}" if label else str(errors) for _, label, errors in editor.wrong), "")


def _save_item(editor: Any, user: User, kind: str) -> tuple[Any, bool]:
    try:
        with transaction.atomic():
            result: tuple[Any, bool] = editor.save(user)
    except IntegrityError:
        message = f"A {kind} with this name already exists."
        raise Problem(409, message, where="name", fix="Choose another name.") from None
    return result


_add_reading(RewardVersion, shapes.reward_version, config_yaml.export)
_add_saving(RewardVersion, shapes.reward_version, _save_reward, reward_saving.clone)
_add_managing(RewardVersion, shapes.reward_version)
_add_reading(EnvironmentVersion, shapes.environment_version, environment_yaml.export)
_add_saving(EnvironmentVersion, shapes.environment_version, _save_environment, environment_saving.clone)
_add_managing(EnvironmentVersion, shapes.environment_version)
