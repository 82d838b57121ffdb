"""The remaining fields of GRPOConfig as form fields, typed by the schema of the host's trainer."""

from collections.abc import Iterator, Mapping
from typing import Any

from django import forms
from django.forms.fields import InvalidJSONInput

from controlplane.platform.http.request_body import storable_value
from runs.launch.new_run.fields.table import BY_FIELD
from workers.contract.stack.training_rules import DECIDED_BY_PROFILES, MADE_BY_THE_FORM, RESERVED

MAX_HELP = 400
MAX_INT = 10**15
LAUNCH_NAMES = frozenset({*BY_FIELD, "key", "cloned_from"})
"""Names of the page's own fields, which a trainer's schema can't override."""
DEFAULT = "default: "
"""Prefix of the trainer's default, which an empty field leaves in place."""


class Json(forms.JSONField):
    """A JSON field whose empty input means not set; Django's JSONField shows None as `null` and reads that back as a
    value."""

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and value.strip() and not _can_be_stored(value):
            raise forms.ValidationError(self.error_messages["invalid"], code="invalid")
        return super().to_python(value)

    def bound_data(self, data: Any, initial: Any) -> Any:
        if isinstance(data, str) and not _can_be_stored(data):
            return InvalidJSONInput(data)  # shown again as typed
        return super().bound_data(data, initial)


def _can_be_stored(document: str) -> bool:
    """Return whether a text is JSON that can be stored, and not nested too deeply to parse."""
    try:
        storable_value(document)
    except (ValueError, RecursionError):
        return False
    return True


def fields(schema: Mapping[str, Any] | None) -> Iterator[tuple[str, str, forms.Field]]:
    """Yield (group, name, form field) for fields that aren't the page's own, skipping malformed entries."""
    for entry in (schema or {}).get("fields") or ():
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            continue
        name = entry["name"]
        if name in LAUNCH_NAMES | RESERVED | MADE_BY_THE_FORM or not name.isidentifier():
            continue
        yield str(entry.get("group") or "Other"), name, _field(entry)


def changed_values(schema: Mapping[str, Any] | None, cleaned: dict[str, Any]) -> dict[str, Any]:
    """Collect the values that differ from the trainer's defaults, and those that override a profile."""
    defaults = (schema or {}).get("defaults") or {}
    values: dict[str, Any] = {}
    for _, name, _ in fields(schema):
        value = cleaned.get(name)
        if value is None or value == "":
            continue
        is_default = name in defaults and defaults[name] == value and type(defaults[name]) is type(value)
        if is_default and name not in DECIDED_BY_PROFILES:
            continue
        values[name] = value
    return values


def _field(entry: dict[str, Any]) -> forms.Field:
    default = _default_label(entry.get("default"))
    kwargs: dict[str, Any] = {
        "label": entry["name"],
        "help_text": _shorten(str(entry.get("help") or "")),
        "required": False,
    }
    kind = entry.get("type")
    if kind == "bool":
        choices = [("", DEFAULT + default), ("true", "on"), ("false", "off")]
        return forms.TypedChoiceField(choices=choices, coerce=lambda v: v == "true", empty_value=None, **kwargs)
    if entry.get("choices"):
        options = [("", DEFAULT + default), *((str(c), str(c)) for c in entry["choices"])]
        return forms.ChoiceField(choices=options, **kwargs)
    hint = {"placeholder": default}
    if kind == "int":
        widget = forms.NumberInput(attrs=hint)
        return forms.IntegerField(min_value=-MAX_INT, max_value=MAX_INT, widget=widget, **kwargs)
    if kind == "float":
        return forms.FloatField(widget=forms.TextInput(attrs={**hint, "inputmode": "decimal"}), **kwargs)
    if kind == "json":
        return Json(widget=forms.Textarea(attrs={**hint, "rows": 2, "class": "code"}), **kwargs)
    return forms.CharField(max_length=2000, widget=forms.TextInput(attrs=hint), **kwargs)


def _default_label(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_HELP else text[: MAX_HELP - 1].rstrip() + "…"
