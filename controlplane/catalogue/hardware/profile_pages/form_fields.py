"""Form fields for values that are entered as text: GPU indexes, names, addresses, variables, JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from django import forms

from controlplane.platform import json_with_comments

MOST_ENTRIES = 64
MOST_CHARACTERS = 4000


class _TextField(forms.CharField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=MOST_CHARACTERS, **kwargs)


class GpusField(_TextField):
    """0, 1 -> (0, 1)"""

    widget = forms.TextInput(attrs={"autocomplete": "off", "placeholder": "any"})

    def clean(self, value: Any) -> tuple[int, ...]:
        words = _words(super().clean(value))
        if not all(re.fullmatch(r"[0-9]{1,4}", word) for word in words) or len(words) > MOST_ENTRIES:
            raise forms.ValidationError("Write GPU indexes as numbers, such as 0, 1.")
        return tuple(int(word) for word in words)

    def prepare_value(self, value: Any) -> Any:
        return _joined(value, ", ")


class NamesField(_TextField):
    """q_proj, v_proj -> ("q_proj", "v_proj")"""

    widget = forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})

    def clean(self, value: Any) -> tuple[str, ...]:
        words = _words(super().clean(value))
        if len(words) > MOST_ENTRIES:
            raise forms.ValidationError(f"At most {MOST_ENTRIES} names.")
        return tuple(dict.fromkeys(words))

    def prepare_value(self, value: Any) -> Any:
        return _joined(value, ", ")


class AddressesField(_TextField):
    """One address per line."""

    widget = forms.Textarea(
        attrs={"rows": 2, "class": "code", "spellcheck": "false", "placeholder": "http://127.0.0.1:8000"}
    )

    def clean(self, value: Any) -> tuple[str, ...]:
        return _words(super().clean(value))

    def prepare_value(self, value: Any) -> Any:
        return _joined(value, "\n")


class EnvironmentField(_TextField):
    """NAME=VALUE lines -> {"NAME": "VALUE"}; profile_problems checks which may be set."""

    widget = forms.Textarea(
        attrs={
            "rows": 3,
            "class": "code",
            "spellcheck": "false",
            "placeholder": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        }
    )

    def clean(self, value: Any) -> dict[str, str]:
        variables: dict[str, str] = {}
        for line in filter(None, (line.strip() for line in super().clean(value).splitlines())):
            name, equals, text = (part.strip() for part in line.partition("="))
            if not equals or not name:
                raise forms.ValidationError(f"Write each variable as NAME=VALUE; this line is not: {line[:80]}")
            if name in variables:
                raise forms.ValidationError(f"{name[:80]} is set twice.")
            variables[name] = text
        return variables

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return "\n".join(f"{name}={text}" for name, text in value.items())
        return value


class JsonObjectField(forms.CharField):
    """A JSON object, which may have comments -> a dict, or None if empty."""

    widget = forms.Textarea(attrs={"rows": 8, "class": "code", "spellcheck": "false", "placeholder": "{}"})

    def clean(self, value: Any) -> dict[str, Any] | None:
        text = super().clean(value)
        if not text.strip():
            return None
        try:
            tree = json_with_comments.load(text)
        except json_with_comments.JsonRefused as error:
            raise forms.ValidationError(str(error)) from error
        if not isinstance(tree, dict):
            raise forms.ValidationError("It must be a JSON object: { … }.")
        return tree or None

    def prepare_value(self, value: Any) -> Any:
        return json.dumps(value, indent=2) if isinstance(value, Mapping) else value


class YesNoField(forms.ChoiceField):
    """Yes, no, or the device's default."""

    def __init__(self, **kwargs: Any) -> None:
        choices = (("", "Auto"), ("on", "On"), ("off", "Off"))
        super().__init__(choices=choices, **{**kwargs, "required": False})

    def clean(self, value: Any) -> bool | None:
        return {"on": True, "off": False}.get(str(super().clean(value)))

    def prepare_value(self, value: Any) -> Any:
        return {True: "on", False: "off"}.get(value, "" if value is None else value)


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.split(r"[\s,;]+", text.strip(" \t\r\n,;"))) if text.strip(" \t\r\n,;") else ()


def _joined(value: Any, by: str) -> Any:
    if isinstance(value, Iterable) and not isinstance(value, str):
        return by.join(str(entry) for entry in value)
    return value
