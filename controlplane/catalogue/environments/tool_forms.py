"""A form for a tool's arguments, built from its JSON schema."""

import json
from collections.abc import Mapping
from typing import Any

from django import forms

from controlplane.catalogue.versioned.parameter_forms import TextField
from controlplane.platform.http.request_body import field_value
from workers.environments.entry import ToolDescription

MAX_LENGTH = 20_000
ARGUMENT = "a_"
_LONG_NAMES = ("code", "text", "source")
"""Substrings in the names of arguments that usually have several lines."""
_LEFT_OUT_CHOICE = ("", "left out")


class ArgumentsForm(forms.Form):
    """Form of a tool's arguments; a value of `json`, valid or not, replaces the other fields."""

    json = TextField(
        label="Or all arguments as JSON",
        required=False,
        max_length=MAX_LENGTH,
        widget=forms.Textarea(attrs={"class": "code", "rows": 3, "spellcheck": "false"}),
        help_text="Sent unchanged even if it is invalid, like a model's call.",
    )

    def __init__(self, tool: ToolDescription, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tool = tool
        properties = tool.parameters.get("properties")
        required = tool.parameters.get("required") or ()
        for name, schema in (properties if isinstance(properties, Mapping) else {}).items():
            self.fields[ARGUMENT + name] = _field(name, schema if isinstance(schema, Mapping) else {}, name in required)

    @property
    def arguments_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name != "json"]

    def arguments(self) -> Any:
        """Return the arguments of a valid form as a model would send them."""
        values = self.cleaned_data
        if values["json"].strip():
            try:
                return field_value(values["json"])
            except (ValueError, RecursionError):
                return values["json"]  # the executor reports the error
        field_values = {name.removeprefix(ARGUMENT): value for name, value in values.items() if name != "json"}
        return {name: value for name, value in field_values.items() if value is not None}


class _TextArgument(TextField):
    """Field for a string. A required string may be empty; an optional one that is left empty has the value None."""

    def clean(self, value: Any) -> Any:
        return None if value in (None, "") and not self.required else super().clean(value)

    def validate(self, value: Any) -> None:
        pass


def _field(name: str, schema: Mapping[str, Any], required: bool) -> forms.Field:
    note = str(schema.get("description") or "")[:500]
    common: dict[str, Any] = {"label": name, "help_text": note, "required": required}
    default, json_type, choices = schema.get("default"), schema.get("type"), schema.get("enum")
    if json_type == "boolean":
        choices = [True, False]
    if isinstance(choices, list) and choices:
        choices_by_json = {json.dumps(choice): choice for choice in choices}
        options = [
            *([] if required else [_LEFT_OUT_CHOICE]),
            *((key, str(choice)) for key, choice in choices_by_json.items()),
        ]
        initial = json.dumps(default) if "default" in schema else None
        coerce = choices_by_json.__getitem__
        return forms.TypedChoiceField(choices=options, coerce=coerce, empty_value=None, initial=initial, **common)
    if json_type == "integer":
        return forms.IntegerField(initial=default, **common)
    if json_type == "number":
        return forms.FloatField(initial=default, widget=forms.NumberInput(attrs={"step": "any"}), **common)
    if json_type == "string":
        is_long = any(part in name.lower() for part in _LONG_NAMES)
        attrs: dict[str, Any] = {"spellcheck": "false", "maxlength": MAX_LENGTH}
        widget = forms.Textarea(attrs=attrs | {"rows": 4, "class": "code"}) if is_long else forms.TextInput(attrs=attrs)
        return _TextArgument(strip=False, max_length=MAX_LENGTH, initial=default, widget=widget, **common)
    area = forms.Textarea(attrs={"rows": 2, "class": "code", "spellcheck": "false"})
    return forms.JSONField(initial=default, widget=area, **common | {"help_text": f"{note} JSON.".strip()})
