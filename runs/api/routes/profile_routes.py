"""Hardware profiles and presets of health checks: list, read, make, change, delete."""

from functools import partial
from typing import Annotated, Any

from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from ninja import Field, Query, Status

from controlplane.catalogue.exchange.documents import MAX_BYTES
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.hardware.profile_pages import profile_import, profile_memory, profile_yaml
from controlplane.catalogue.hardware.profile_pages.forms import ProfileForm, save
from controlplane.catalogue.hardware.profiles import archive, profile_of
from controlplane.catalogue.hardware.queries import profile_for, profiles_for
from controlplane.platform.accounts.roles import person
from controlplane.platform.safe_yaml import YamlRefused
from runs.api import form_values, shapes
from runs.api.access import Problem, Router, existing, refusing
from runs.api.routes import trash_routes
from runs.api.shapes import Cursor, Id, ItemResponse, Limit, PageResponse, RequestBody, Value
from runs.engine.models import HealthPreset
from runs.engine.trash.kinds import KINDS
from runs.insight.health import presets
from runs.insight.health.forms import PresetForm
from workers.contract.wire.documents import ContractError, to_dict

router = Router(tags=["profiles and presets"])
Fields = dict[Annotated[str, Field(max_length=80)], Value]


class NewProfile(RequestBody):
    document: str = Field(
        "", max_length=MAX_BYTES, description="A profile's YAML, or another tool's config that describes hardware."
    )
    values: Fields = Field(
        {}, description="Fields of the form, such as name, trainer_gpus, rollout, use_lora; they override the document."
    )


class ProfileChange(RequestBody):
    values: Fields = Field({}, description="Fields of the form to change, such as trainer_gpus. null: empty.")
    archived: bool | None = Field(None, description="Archived, it isn't offered for new runs.")


class PresetChange(RequestBody):
    values: Fields = Field({}, description="name, source, and RULE-on, RULE-warning and RULE-bad of each rule.")
    default: bool = Field(False, description="true: runs without a preset use this one.")


@router.get("profiles", response=PageResponse)
def profiles(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List hardware profiles."""
    return shapes.page(profiles_for(request), _profile, cursor, limit)


@router.post("profiles", response={201: ItemResponse})
def new_profile(request: HttpRequest, payload: NewProfile) -> Any:
    """Make a hardware profile. From YAML, from fields, or from both; the rest is as on the page."""
    first, values = ProfileForm(), dict(payload.values)
    if payload.document:
        with refusing(YamlRefused, where="document", status=422):
            imported = profile_import.read(payload.document.encode(errors="replace")).form
        if set(imported.errors) - set(values):
            form_values.checked(imported, where="document")
        values = {name: imported.data.get(name) for name in first.fields if name in imported.data} | values
        first = ProfileForm(initial=dict.fromkeys(first.fields, False))
    form = form_values.filled(ProfileForm, values, where="values", first=first)
    return Status(201, {"item": _profile(_saved(form, HardwareProfile(owner=person(request))))})


@router.get("profiles/{int:profile_id}", response=ItemResponse)
def profile(request: HttpRequest, profile_id: Id) -> Any:
    """Read a hardware profile."""
    return {"item": _profile(profile_for(request, profile_id))}


@router.get("profiles/{int:profile_id}/yaml")
def as_yaml(request: HttpRequest, profile_id: Id) -> HttpResponse:
    """Read a hardware profile as YAML."""
    with refusing(ContractError, where="profile", text="It can't be exported: {}.", fix="Save it again."):
        text = profile_yaml.export(profile_of(profile_for(request, profile_id)))
    return HttpResponse(text, content_type="application/yaml; charset=utf-8")


@router.get("profiles/{int:profile_id}/memory", response=ItemResponse)
def memory_of(
    request: HttpRequest,
    profile_id: Id,
    model: Annotated[
        str, Query(max_length=500, description="One of the answer's models. Empty: the largest that fits.")
    ] = "",
    card: Annotated[str, Query(max_length=20, description="GiB of one GPU. Empty: as in the profile.")] = "",
) -> Any:
    """Estimate which model a hardware profile holds, and the batch that uses the memory.

    For one of its models on GPUs of `card` GiB; by default for the largest model that fits the profile's GPUs.
    `use_the_memory` and `guide` are fields for a PATCH; null and {}: nothing would change."""
    estimate = profile_memory.on_page(profile_for(request, profile_id), model, card)
    if estimate is None:
        sentence = "There is no estimate: the profile uses no GPU, or can't be read."
        unknown: dict[str, Any] = {
            "models": [],
            "model": "",
            "card_gib": None,
            "divided_for": "",
            "use_the_memory": None,
            "guide": {},
        }
        return {"item": {"says": sentence, **unknown}}
    room = estimate.room
    gains = room and {"gain": round(room.gain, 3), "says": room.text, "values": room.values}
    figures = shapes.columns(estimate, "models", "model", "card_gib", "divided_for")
    return {"item": {"says": estimate.sentence, **figures, "use_the_memory": gains, "guide": estimate.guide}}


@router.patch("profiles/{int:profile_id}", response=ItemResponse)
def change_profile(request: HttpRequest, profile_id: Id, payload: ProfileChange) -> Any:
    """Change a profile. Fields that aren't sent stay. Runs keep their copies."""
    row = profile_for(request, profile_id)
    row = _saved(form_values.filled(partial(ProfileForm, profile=row), payload.values, where="values"), row)
    if payload.archived is not None:
        archive(row, archived=payload.archived)
    return {"item": _profile(row)}


@router.delete("profiles/{int:profile_id}", response={204: None})
def delete_profile(request: HttpRequest, profile_id: Id) -> Any:
    """Delete a profile. Runs that used it are not affected. It can be restored for a while: see /deleted."""
    profile_for(request, profile_id)
    return trash_routes.mark(KINDS["profile"], profile_id, person(request))


@router.get("presets", response=PageResponse)
def list_presets(request: HttpRequest) -> Any:
    """List presets of health checks."""
    return {"items": [_preset(row) for row in presets.choices()], "next_cursor": ""}


@router.get("presets/{int:preset_id}", response=ItemResponse)
def preset(request: HttpRequest, preset_id: Id) -> Any:
    """Read a preset. `values` are as for a PATCH."""
    return {"item": _preset(_preset_for(preset_id))}


@router.post("presets/{int:preset_id}/copy", response={201: ItemResponse})
def copy_preset(request: HttpRequest, preset_id: Id) -> Any:
    """Clone a preset. Built-in presets can't be changed; their clones can."""
    return Status(201, {"item": _preset(presets.copy(_preset_for(preset_id), person(request)))})


@router.patch("presets/{int:preset_id}", response=ItemResponse)
def change_preset(request: HttpRequest, preset_id: Id, payload: PresetChange) -> Any:
    """Change a preset. Runs that use it are rated again within seconds."""
    row = _preset_for(preset_id)
    if payload.values:
        if row.slug is not None:
            raise Problem(409, "Built-in presets can't be changed.", where="preset", fix="Clone it: POST …/copy.")
        first = PresetForm(None, preset=row)
        form_values.filled(partial(PresetForm, preset=row), payload.values, where="values", first=first).save()
    if payload.default:
        presets.make_default(row)
    return {"item": _preset(_preset_for(preset_id))}


@router.delete("presets/{int:preset_id}", response={204: None})
def delete_preset(request: HttpRequest, preset_id: Id) -> Any:
    """Delete a preset. Its runs use the default instead."""
    row = _preset_for(preset_id)
    if problem := presets.undeletable(row):
        raise Problem(409, problem, where="preset")
    row.delete()
    return Status(204, None)


def _saved(form: ProfileForm, row: HardwareProfile) -> HardwareProfile:
    try:
        with transaction.atomic():
            return save(form, row)
    except IntegrityError:
        fix = "Choose another name."
        raise Problem(409, "There is a profile of this name already.", where="values.name", fix=fix) from None


def _profile(row: Any) -> dict[str, Any]:
    answer = {
        "id": row.pk,
        "hardware": row.spec,
        **shapes.columns(row, "name", "description", "lora", "batch"),
        "archived": row.archived_at is not None,
        "problem": "",
    }
    try:
        answer["hardware"] = to_dict(profile_of(row).spec)
    except ContractError as error:
        answer["problem"] = str(error)
    return answer


def _preset_for(preset_id: int) -> HealthPreset:
    return existing(HealthPreset.objects.all(), preset_id, "There is no preset")


def _preset(row: HealthPreset) -> dict[str, Any]:
    form = PresetForm(None, preset=row)
    return {
        "id": row.pk,
        "name": row.name,
        "built_in": row.slug is not None,
        "default": row.is_default,
        "values": {bound.name: bound.value() for bound in form},
    }
