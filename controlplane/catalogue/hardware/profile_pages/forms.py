"""The profile form, with a typed field for every field of the contract's dataclasses and of a profile's batch."""

import copy
import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, cast

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS

from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.hardware.profile_fields import ATTACHED, CHOICES, HELP, LABELS, SECTIONS, FieldGroup, When
from controlplane.catalogue.hardware.profile_pages.form_fields import (
    AddressesField,
    EnvironmentField,
    GpusField,
    JsonObjectField,
    NamesField,
    YesNoField,
)
from controlplane.catalogue.hardware.profiles import Profile, profile_of, profile_problems
from controlplane.platform.http.form_pages import wrong_fields
from workers.contract.run.hardware import BATCH_FIELDS, ZERO, HardwareSpec, Rollout, ServerSpec
from workers.contract.run.spec import LoraSpec
from workers.contract.wire.documents import ContractError, from_dict

MAX_NUMBER = 10**6
TEXT_FIELDS = ("name", "description")
PARSED_FIELDS: dict[str, type[forms.Field]] = {
    "trainer_gpu_ids": GpusField,
    "server_gpu_ids": GpusField,
    "server_attached": AddressesField,
    "lora_targets": NamesField,
    "environment": EnvironmentField,
    "deepspeed": JsonObjectField,
}
"""Classes of the fields whose input is parsed into several values."""


@dataclasses.dataclass(frozen=True)
class FieldType:
    """A form field's type and default, as in the contract."""

    kind: Any
    optional: bool
    default: Any


def spec_fields() -> dict[str, FieldType]:
    typed = {**_field_types(HardwareSpec, "", excluded=("profile", "server")), **_field_types(ServerSpec, "server_")}
    lora_types = _field_types(LoraSpec, "lora_")
    lora_types["lora_targets"] = lora_types.pop("lora_target_modules")
    batch_types = {name: FieldType(int, True, None) for name in BATCH_FIELDS}
    return {**typed, "use_lora": FieldType(bool, False, False), **lora_types, **batch_types}


def _field_types(cls: type, prefix: str, excluded: tuple[str, ...] = ()) -> dict[str, FieldType]:
    hints = typing.get_type_hints(cls)
    types_by_name = {}
    for field in dataclasses.fields(cls):
        if field.name in excluded:
            continue
        hint = hints[field.name]
        optional = typing.get_origin(hint) in (typing.Union, types.UnionType)
        kind = next(argument for argument in typing.get_args(hint) if argument is not type(None)) if optional else hint
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        types_by_name[prefix + field.name] = FieldType(kind, optional, default)
    return types_by_name


def _form_field(name: str, field_type: FieldType) -> forms.Field:
    options: dict[str, Any] = {
        "label": LABELS[name],
        "help_text": HELP[name],
        "initial": field_type.default,
        "required": not field_type.optional and name not in PARSED_FIELDS,
    }
    if name in PARSED_FIELDS:
        return PARSED_FIELDS[name](**options)
    if name in CHOICES:
        return forms.ChoiceField(choices=CHOICES[name], **options)
    if field_type.kind is bool:
        return YesNoField(**options) if field_type.optional else forms.BooleanField(**{**options, "required": False})
    if field_type.kind is int:
        return forms.IntegerField(**options, min_value=int(name in BATCH_FIELDS), max_value=MAX_NUMBER)
    if field_type.kind is float:
        widget = forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"})
        return forms.FloatField(**options, min_value=0, max_value=MAX_NUMBER, widget=widget)
    raise TypeError(f"{name}: no form field for {field_type.kind}")


class ProfileForm(forms.Form):
    """Form of a profile; once it is valid, `result` is the profile. Fields that don't apply accept any value and get
    their defaults."""

    tips = False
    """True if the page shows each field's help behind a "?"."""

    name = forms.CharField(max_length=80)
    description = forms.CharField(required=False, max_length=1000, widget=forms.Textarea(attrs={"rows": 3}))

    digest = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(
        self,
        *args: Any,
        profile: HardwareProfile | None = None,
        changes: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Fill in the form from a profile. `changes` are proposed values, which are marked until they are saved."""
        self.profile = profile
        initial = {"trainer_gpus": 1} if profile is None else {**_stored_values(profile), "digest": _digest(profile)}
        kwargs.setdefault("initial", initial)
        super().__init__(*args, **kwargs)
        for name, field_type in spec_fields().items():
            self.fields[name] = _form_field(name, field_type)
        self.changes = dict(changes or {})
        for name, value in self.changes.items():
            self.fields[name].changed_from = str(self.initial.get(name))  # type: ignore[attr-defined]
            self.fields[name].changed_why = "not saved yet"  # type: ignore[attr-defined]
            self.initial[name] = value

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"]).strip()
        same_name = HardwareProfile.objects.filter(name__iexact=name)
        if self.profile is not None:
            same_name = same_name.exclude(pk=self.profile.pk)
        if same_name.exists():
            raise forms.ValidationError("A profile with this name already exists. Choose another name.")
        return name

    def _refuse_to_overwrite(self, digest: Any) -> None:
        """Add an error if another user has changed the profile. The form gets the new digest, so that saving again
        overwrites that change."""
        if self.profile is None or not digest or digest == _digest(self.profile):
            return
        data = copy.copy(cast("dict[str, Any]", self.data))  # a QueryDict, whose copy can be changed
        data["digest"] = _digest(self.profile)
        self.data = data
        self.add_error(
            None,
            "Somebody has changed this profile since you opened it. "
            "Open it in another tab to compare; saving again keeps your version.",
        )

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        self._refuse_to_overwrite(values.get("digest"))
        for group in self._inapplicable_groups(values):
            for name in group.names:
                self.errors.pop(name, None)
                values[name] = self.fields[name].initial
        if (
            values.get("rollout") == ATTACHED
            and not values.get("server_attached")
            and "server_attached" not in self.errors
        ):
            self.add_error("server_attached", "Enter the address of at least one server.")
        # Errors of name and description alone don't suppress other errors.
        if set(self.errors) - {*TEXT_FIELDS, NON_FIELD_ERRORS}:
            return values
        self.result = _result({**dict.fromkeys(TEXT_FIELDS, ""), **values})
        for problem in profile_problems(self.result):
            self.add_error(problem.field, str(problem))
        return values

    def _inapplicable_groups(self, values: dict[str, Any]) -> list[FieldGroup]:
        rollout = values.get("rollout")
        applies = {
            When.ALWAYS: True,
            When.COLOCATE: rollout == Rollout.COLOCATE,
            When.OWN: rollout == Rollout.SERVER,
            When.ATTACHED: rollout == ATTACHED,
            When.SERVERS: rollout in (Rollout.SERVER, ATTACHED),
            When.LORA: bool(values.get("use_lora")),
            When.ZERO: values.get("strategy") in ZERO,
        }
        return [part for section in SECTIONS for part in section.parts if not applies[part.when]]

    @property
    def sections(self) -> list[dict[str, Any]]:
        """Sections with their parts and fields, for the template."""
        return [
            {
                "title": section.title,
                "about": section.about,
                "parts": [
                    {"when": part.when, "title": part.title, "fields": [self[name] for name in part.names]}
                    for part in section.parts
                ],
            }
            for section in SECTIONS
        ]

    @property
    def wrong_fields(self) -> list[tuple[str, str, str]]:
        return wrong_fields(self)


def values_of(profile: Profile) -> dict[str, Any]:
    """Convert a profile to typed form values."""
    spec, lora = profile.spec, profile.lora or LoraSpec()
    server = spec.server or ServerSpec()
    is_attached = spec.rollout == Rollout.SERVER and bool(server.attached)
    return {
        "name": profile.name,
        "description": profile.description,
        **{f.name: getattr(spec, f.name) for f in dataclasses.fields(spec) if f.name not in ("profile", "server")},
        "rollout": ATTACHED if is_attached else spec.rollout,
        **{f"server_{f.name}": getattr(server, f.name) for f in dataclasses.fields(server)},
        "use_lora": profile.lora is not None,
        "lora_r": lora.r,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "lora_targets": lora.target_modules,
        **profile.batch,
    }


def _stored_values(row: HardwareProfile) -> dict[str, Any]:
    try:
        return values_of(profile_of(row))
    except ContractError:
        # Of a version with other fields: its name can still be shown and saved.
        return {"name": row.name, "description": row.description}


def _result(values: dict[str, Any]) -> Profile:
    is_attached = values["rollout"] == ATTACHED
    rollout = Rollout.SERVER if is_attached else Rollout(values["rollout"])
    server = None
    if rollout == Rollout.SERVER:
        server = {field.name: values[f"server_{field.name}"] for field in dataclasses.fields(ServerSpec)}
        server["attached"] = server["attached"] if is_attached else ()
    spec_values = {field.name: values[field.name] for field in dataclasses.fields(HardwareSpec) if field.name in values}
    spec = from_dict(HardwareSpec, {**spec_values, "rollout": rollout, "profile": values["name"], "server": server})
    lora = None
    if values["use_lora"]:
        lora = LoraSpec(values["lora_r"], values["lora_alpha"], values["lora_dropout"], values["lora_targets"])
    batch = {name: values[name] for name in BATCH_FIELDS if values.get(name) is not None}
    return Profile(values["name"], values["description"], spec, lora, batch)


def save(form: ProfileForm, row: HardwareProfile) -> HardwareProfile:
    """Save the form's result, and return its row. Settings equivalent to the stored ones aren't rewritten, so that
    renaming doesn't count as changing them."""
    is_unchanged = row.pk is not None and _has_settings(row, form.result)
    for column, value in form.result.columns().items():
        if column in TEXT_FIELDS or not is_unchanged:
            setattr(row, column, value)
    row.save()
    return row


def _has_settings(row: HardwareProfile, profile: Profile) -> bool:
    try:
        stored_profile = profile_of(row)
    except ContractError:
        return False
    spec = dataclasses.replace(stored_profile.spec, profile=profile.spec.profile)
    return (spec, stored_profile.lora, stored_profile.batch) == (profile.spec, profile.lora, profile.batch)


def as_submitted(values: Mapping[str, Any]) -> dict[str, str]:
    """Convert typed values to the strings that a browser would send."""
    form = ProfileForm()
    prepared_values = {name: form.fields[name].prepare_value(value) for name, value in values.items()}
    return {
        name: "on" if value is True else "" if value is None else str(value)
        for name, value in prepared_values.items()
        if value is not False
    }


def _digest(profile: HardwareProfile) -> str:
    content = [profile.name, profile.description, profile.spec, profile.lora, profile.batch]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
