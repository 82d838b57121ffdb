"""Reward configs and environments: their versions, as YAML, archived, duplicated, deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from ninja import Field, Status

from controlplane.catalogue.environments import config_yaml as environment_yaml
from controlplane.catalogue.environments import saving as environment_saving
from controlplane.catalogue.environments.models import Environment, EnvironmentVersion
from controlplane.catalogue.rewards import code_check, config_yaml
from controlplane.catalogue.rewards import saving as reward_saving
from controlplane.catalogue.rewards.models import RewardConfig, RewardVersion
from controlplane.catalogue.versioned import permissions, saving
from controlplane.catalogue.versioned import queries as versioned_queries
from controlplane.catalogue.versioned.models import Item
from controlplane.platform import safe_yaml
from controlplane.platform.accounts.models import User
from controlplane.platform.accounts.roles import person
from runs.api import paging, shapes
from runs.api.access import Problem, Router
from runs.api.routes import trash_routes
from runs.api.shapes import Cursor, Id, ItemResponse, Limit, PageResponse, RequestBody, ResponseBody
from runs.engine.trash.kinds import KINDS, DeletableKind

router = Router(tags=["rewards and environments"])


class YamlDocument(RequestBody):
    document: str = Field(description="YAML, as the export on its page writes it.")


class NewVersion(YamlDocument):
    note: str = Field("", max_length=200, description="What changes.")
    based_on: Id | None = Field(
        None, description="The number of the version that was changed: 409 if there is a newer one. None: whichever."
    )


class ItemChange(RequestBody):
    archived: bool | None = None
    name: str | None = Field(None, max_length=200, description="A new name. Links go by ids and stay.")


class Saved(ResponseBody):
    item: dict[str, Any]
    """The version, as the list of versions has it."""
    new: bool
    """False: it is the same as the newest version, so that no other was made."""


@router.get("rewards", response=PageResponse)
def rewards(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List reward configs. The newest version of each."""
    found, after = paging.page(versioned_queries.newest_versions(RewardVersion), cursor, limit)
    return {"items": [shapes.reward_version(each) for each in found], "next_cursor": after}


@router.get("rewards/{int:config_id}", response=PageResponse)
def reward(request: HttpRequest, config_id: Id, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List the versions of a reward config."""
    versions = versioned_queries.item_for(RewardConfig, request, config_id).versions.select_related("config")
    found, after = paging.page(versions.all(), cursor, limit)
    return {"items": [shapes.reward_version(each) for each in found], "next_cursor": after}


@router.get("rewards/{int:config_id}/{int:number}/yaml")
def reward_yaml(request: HttpRequest, config_id: Id, number: Id) -> HttpResponse:
    """Read a version of a reward config as YAML."""
    return _yaml(config_yaml.export(versioned_queries.version_for(RewardVersion, request, config_id, number)))


@router.post("rewards", response={201: ItemResponse})
def new_reward(request: HttpRequest, payload: YamlDocument) -> Any:
    """Make a reward config. From YAML. Custom code needs the admin role and passes the same checks as in the editor."""
    saved, _ = _save_reward(person(request), payload, None)
    return Status(201, {"item": shapes.reward_version(saved)})


@router.post("rewards/{int:config_id}", response={200: Saved, 201: Saved})
def save_reward(request: HttpRequest, config_id: Id, payload: NewVersion) -> Any:
    """Save a new version of a reward config.

    From YAML, whose name and description become the config's. Runs keep the version that they have."""
    saved, new = _save_reward(person(request), payload, versioned_queries.item_for(RewardConfig, request, config_id))
    return Status(201 if new else 200, {"item": shapes.reward_version(saved), "new": new})


@router.patch("rewards/{int:config_id}", response=ItemResponse)
def change_reward(request: HttpRequest, config_id: Id, payload: ItemChange) -> Any:
    """Archive or rename a reward config. Archived, it isn't offered for new runs."""
    _change(KINDS["reward"], versioned_queries.item_for(RewardConfig, request, config_id), payload, person(request))
    return {"item": shapes.reward_version(versioned_queries.item_for(RewardConfig, request, config_id).newest())}


@router.delete("rewards/{int:config_id}", response={204: None})
def delete_reward(request: HttpRequest, config_id: Id) -> Any:
    """Delete a reward config.

    With all versions; runs have copies of what they use. It can be restored for a while: see /deleted."""
    versioned_queries.item_for(RewardConfig, request, config_id)
    return trash_routes.mark(KINDS["reward"], config_id, person(request))


@router.post("rewards/{int:config_id}/{int:number}/duplicate", response={201: ItemResponse})
def duplicate_reward(request: HttpRequest, config_id: Id, number: Id) -> Any:
    """Duplicate a version of a reward config. As a config of its own, under the next free name."""
    version = versioned_queries.version_for(RewardVersion, request, config_id, number)
    return Status(201, {"item": shapes.reward_version(reward_saving.clone(version, person(request)))})


@router.get("environments", response=PageResponse)
def environments(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List environments. The newest version of each."""
    found, after = paging.page(versioned_queries.newest_versions(EnvironmentVersion), cursor, limit)
    return {"items": [shapes.environment_version(each) for each in found], "next_cursor": after}


@router.get("environments/{int:environment_id}", response=PageResponse)
def environment(request: HttpRequest, environment_id: Id, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List the versions of an environment."""
    versions = versioned_queries.item_for(Environment, request, environment_id).versions.select_related("environment")
    found, after = paging.page(versions.all(), cursor, limit)
    return {"items": [shapes.environment_version(each) for each in found], "next_cursor": after}


@router.get("environments/{int:environment_id}/{int:number}/yaml")
def environment_as_yaml(request: HttpRequest, environment_id: Id, number: Id) -> HttpResponse:
    """Read a version of an environment as YAML."""
    return _yaml(
        environment_yaml.export(versioned_queries.version_for(EnvironmentVersion, request, environment_id, number))
    )


@router.post("environments", response={201: ItemResponse})
def new_environment(request: HttpRequest, payload: YamlDocument) -> Any:
    """Make an environment. From YAML. Custom tools need the admin role."""
    saved, _ = _save_environment(person(request), payload, None)
    return Status(201, {"item": shapes.environment_version(saved)})


@router.post("environments/{int:environment_id}", response={200: Saved, 201: Saved})
def save_environment(request: HttpRequest, environment_id: Id, payload: NewVersion) -> Any:
    """Save a new version of an environment.

    From YAML, whose name and description become the environment's. Runs keep the version that they have."""
    environment = versioned_queries.item_for(Environment, request, environment_id)
    saved, new = _save_environment(person(request), payload, environment)
    return Status(201 if new else 200, {"item": shapes.environment_version(saved), "new": new})


@router.patch("environments/{int:environment_id}", response=ItemResponse)
def change_environment(request: HttpRequest, environment_id: Id, payload: ItemChange) -> Any:
    """Archive or rename an environment. Archived, it isn't offered for new runs."""
    _change(
        KINDS["environment"], versioned_queries.item_for(Environment, request, environment_id), payload, person(request)
    )
    newest = versioned_queries.item_for(Environment, request, environment_id).newest()
    return {"item": shapes.environment_version(newest)}


@router.delete("environments/{int:environment_id}", response={204: None})
def delete_environment(request: HttpRequest, environment_id: Id) -> Any:
    """Delete an environment.

    With all versions; runs have copies of what they use. It can be restored for a while: see /deleted."""
    versioned_queries.item_for(Environment, request, environment_id)
    return trash_routes.mark(KINDS["environment"], environment_id, person(request))


@router.post("environments/{int:environment_id}/{int:number}/duplicate", response={201: ItemResponse})
def duplicate_environment(request: HttpRequest, environment_id: Id, number: Id) -> Any:
    """Duplicate a version of an environment. As an environment of its own, under the next free name."""
    version = versioned_queries.version_for(EnvironmentVersion, request, environment_id, number)
    return Status(201, {"item": shapes.environment_version(environment_saving.clone(version, person(request)))})


def _save_reward(user: User, payload: YamlDocument, config: RewardConfig | None) -> tuple[Any, bool]:
    _check_base(payload, config)
    editor = _read(lambda text: config_yaml.read(text, config), payload)
    refused = {} if _wrong(editor) else code_check.problems([form.spec() for form in editor.rows], user)
    for place, reason in refused.items():
        editor.rows[place].refuse(reason)
    if problem := _wrong(editor):
        raise Problem(403 if refused else 422, problem, where="document")
    editor.form.cleaned_data["note"] = _note(payload)
    return _saved(editor, user, "reward config")


def _save_environment(user: User, payload: YamlDocument, environment: Environment | None) -> tuple[Any, bool]:
    _check_base(payload, environment)
    editor = _read(lambda text: environment_yaml.read(text, environment), payload)
    if problem := _wrong(editor):
        raise Problem(422, problem, where="document")
    if not all(permissions.may_use(EnvironmentVersion, user, form.spec()) for form in editor.rows):
        raise Problem(403, permissions.refused(EnvironmentVersion), where="document")
    editor.form.cleaned_data["note"] = _note(payload)
    return _saved(editor, user, "environment")


def _check_base(payload: YamlDocument, item: RewardConfig | Environment | None) -> None:
    if item is None:
        return
    if item.archived_at:
        raise Problem(409, f"{item.name} is archived.", where="archived", fix="PATCH it with archived: false first.")
    newest, base = item.newest().number, payload.based_on if isinstance(payload, NewVersion) else None
    if base is not None and base != newest:
        fix = f"Look at version {newest}, then send based_on: {newest}."
        raise Problem(409, f"Version {newest} was saved since version {base}.", where="based_on", fix=fix)


def _note(payload: YamlDocument) -> str:
    return payload.note.replace("\0", "") if isinstance(payload, NewVersion) else ""


def _change(kind: DeletableKind, item: Item, payload: ItemChange, user: User) -> None:
    if payload.name is not None:
        trash_routes.rename(kind, item, payload.name, user)
    if payload.archived is not None:
        saving.set_archived(item, payload.archived)


def _yaml(text: str) -> HttpResponse:
    return HttpResponse(text, content_type="application/yaml; charset=utf-8")


def _read(read: Callable[[bytes], Any], payload: YamlDocument) -> Any:
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


def _saved(editor: Any, user: User, what: str) -> tuple[Any, bool]:
    try:
        with transaction.atomic():
            saved: tuple[Any, bool] = editor.save(user)
    except IntegrityError:
        taken = f"There is a {what} of this name already."
        raise Problem(409, taken, where="name", fix="Choose another name.") from None
    return saved
