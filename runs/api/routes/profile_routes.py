"""Hardware profiles and presets of health checks: list, read, create, change, delete."""

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
from runs.api.access import Problem, Router, refusing, row_or_404
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
        {}, description="Fields of the form, such as name, trainer_gpus, rollout, use_lora. They override the document."
    )


class ProfileChange(RequestBody):
    values: Fields = Field({}, description="Fields of the form to change, such as trainer_gpus. null clears a field.")
    archived: bool | None = Field(None, description="If true, the profile isn't offered for new runs.")


class PresetChange(RequestBody):
    values: Fields = Field({}, description="name, source, and for each rule RULE-on, RULE-warning and RULE-bad.")
    default: bool = Field(False, description="If true, runs without a preset use this one.")


@router.get("profiles", response=PageResponse)
def profiles(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List hardware profiles."""
    return shapes.page(profiles_for(request), _profile, cursor, limit)


@router.post("profiles", response={201: ItemResponse})
def new_profile(request: HttpRequest, payload: NewProfile) -> Any:
    """Create a hardware profile from YAML, fields or both. Other fields have the page's initial values."""
    initial_form, values = ProfileForm(), dict(payload.values)
    if payload.document:
        with refusing(YamlRefused, where="document", status=422):
            imported = profile_import.read(payload.document.encode(errors="replace")).form
        if set(imported.errors) - set(values):
            form_values.validate(imported, where="document")
        values = {name: imported.data.get(name) for name in initial_form.fields if name in imported.data} | values
        initial_form = ProfileForm(initial=dict.fromkeys(initial_form.fields, False))
    form = form_values.fill(ProfileForm, values, where="values", first=initial_form)
    return Status(201, {"item": _profile(_save(form, HardwareProfile(owner=person(request))))})


@router.get("profiles/{int:profile_id}", response=ItemResponse)
def profile(request: HttpRequest, profile_id: Id) -> Any:
    """Read a hardware profile."""
    return {"item": _profile(profile_for(request, profile_id))}


@router.get("profiles/{int:profile_id}/yaml")
def as_yaml(request: HttpRequest, profile_id: Id) -> HttpResponse:
    """Read a hardware profile as YAML."""
    message = "The profile can't be exported: {}."
    with refusing(ContractError, where="profile", message=message, fix="Save the profile again."):
        text = profile_yaml.export(profile_of(profile_for(request, profile_id)))
    return HttpResponse(text, content_type="application/yaml; charset=utf-8")


@router.get("profiles/{int:profile_id}/memory", response=ItemResponse)
def memory_of(
    request: HttpRequest,
    profile_id: Id,
    model: Annotated[
        str, Query(max_length=500, description="One of `models` in the response. If empty, the largest that fits.")
    ] = "",
    card: Annotated[str, Query(max_length=20, description="GiB of one GPU. If empty, as in the profile.")] = "",
) -> Any:
    """Estimate which model fits a hardware profile, and the batch size that uses the memory.

    The estimate is for one of `models` on GPUs with `card` GiB, by default for the largest model that fits the
    profile's GPUs. `use_the_memory` and `guide` contain fields to send with PATCH; null or {} if there is nothing to
    change."""
    estimate = profile_memory.on_page(profile_for(request, profile_id), model, card)
    if estimate is None:
        sentence = "There is no estimate: the profile uses no GPU or can't be read."
        empty_estimate: dict[str, Any] = {
            "models": [],
            "model": "",
            "card_gib": None,
            "divided_for": "",
            "use_the_memory": None,
            "guide": {},
        }
        return {"item": {"says": sentence, **empty_estimate}}
    room = estimate.room
    gains = room and {"gain": round(room.gain, 3), "says": room.text, "values": room.values}
    figures = shapes.columns(estimate, "models", "model", "card_gib", "divided_for")
    return {"item": {"says": estimate.sentence, **figures, "use_the_memory": gains, "guide": estimate.guide}}


@router.patch("profiles/{int:profile_id}", response=ItemResponse)
def change_profile(request: HttpRequest, profile_id: Id, payload: ProfileChange) -> Any:
    """Change a hardware profile. Fields that aren't sent keep their values. Runs keep the copies that they have."""
    row = profile_for(request, profile_id)
    row = _save(form_values.fill(partial(ProfileForm, profile=row), payload.values, where="values"), row)
    if payload.archived is not None:
        archive(row, archived=payload.archived)
    return {"item": _profile(row)}


@router.delete("profiles/{int:profile_id}", response={204: None})
def delete_profile(request: HttpRequest, profile_id: Id) -> Any:
    """Delete a hardware profile. Runs that used it are not affected. It can be restored for a while: see /deleted."""
    profile_for(request, profile_id)
    return trash_routes.mark(KINDS["profile"], profile_id, person(request))


@router.get("presets", response=PageResponse)
def list_presets(request: HttpRequest) -> Any:
    """List presets of health checks."""
    return {"items": [_preset(row) for row in presets.choices()], "next_cursor": ""}


@router.get("presets/{int:preset_id}", response=ItemResponse)
def preset(request: HttpRequest, preset_id: Id) -> Any:
    """Read a preset of health checks. `values` has the same fields as in PATCH."""
    return {"item": _preset(_preset_for(preset_id))}


@router.post("presets/{int:preset_id}/copy", response={201: ItemResponse})
def copy_preset(request: HttpRequest, preset_id: Id) -> Any:
    """Clone a preset of health checks. Built-in presets can't be changed, but their clones can."""
    return Status(201, {"item": _preset(presets.copy(_preset_for(preset_id), person(request)))})


@router.patch("presets/{int:preset_id}", response=ItemResponse)
def change_preset(request: HttpRequest, preset_id: Id, payload: PresetChange) -> Any:
    """Change a preset of health checks. Runs that use it are assessed again within seconds."""
    row = _preset_for(preset_id)
    if payload.values:
        if row.slug is not None:
            raise Problem(409, "Built-in presets can't be changed.", where="preset", fix="Clone it: POST …/copy.")
        initial_form = PresetForm(None, preset=row)
        form_values.fill(partial(PresetForm, preset=row), payload.values, where="values", first=initial_form).save()
    if payload.default:
        presets.make_default(row)
    return {"item": _preset(_preset_for(preset_id))}


@router.delete("presets/{int:preset_id}", response={204: None})
def delete_preset(request: HttpRequest, preset_id: Id) -> Any:
    """Delete a preset of health checks. Its runs use the default preset instead."""
    row = _preset_for(preset_id)
    if problem := presets.undeletable(row):
        raise Problem(409, problem, where="preset")
    row.delete()
    return Status(204, None)


def _save(form: ProfileForm, row: HardwareProfile) -> HardwareProfile:
    try:
        with transaction.atomic():
            return save(form, row)
    except IntegrityError:
        fix = "Choose another name."
        raise Problem(409, "A profile with this name already exists.", where="values.name", fix=fix) from None


def _profile(row: Any) -> dict[str, Any]:
    fields = {
        "id": row.pk,
        "hardware": row.spec,
        **shapes.columns(row, "name", "description", "lora", "batch"),
        "archived": row.archived_at is not None,
        "problem": "",
    }
    try:
        fields["hardware"] = to_dict(profile_of(row).spec)
    except ContractError as error:
        fields["problem"] = str(error)
    return fields


def _preset_for(preset_id: int) -> HealthPreset:
    return row_or_404(HealthPreset.objects.all(), preset_id, "There is no preset")


def _preset(row: HealthPreset) -> dict[str, Any]:
    form = PresetForm(None, preset=row)
    return {
        "id": row.pk,
        "name": row.name,
        "built_in": row.slug is not None,
        "default": row.is_default,
        "values": {bound.name: bound.value() for bound in form},
    }
