"""Form fields for values that are typed in: GPU indexes, names, addresses, variables, JSON."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from django import forms

from controlplane.platform import json_with_comments

MAX_ENTRIES = 64
MAX_CHARACTERS = 4000


class _TextField(forms.CharField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=MAX_CHARACTERS, **kwargs)


class _ListField(_TextField):
    """A field for entries that are separated by commas or whitespace."""

    separator = ", "

    def clean(self, value: Any) -> tuple[Any, ...]:
        return tuple(filter(None, re.split(r"[\s,;]+", super().clean(value))))

    def prepare_value(self, value: Any) -> Any:
        is_list = isinstance(value, Iterable) and not isinstance(value, str)
        return self.separator.join(map(str, value)) if is_list else value


class GpusField(_ListField):
    widget = forms.TextInput(attrs={"autocomplete": "off", "placeholder": "any"})

    def clean(self, value: Any) -> tuple[int, ...]:
        indexes = super().clean(value)
        if not all(re.fullmatch(r"[0-9]{1,4}", index) for index in indexes) or len(indexes) > MAX_ENTRIES:
            raise forms.ValidationError("Enter GPU indexes as numbers, such as 0, 1.")
        return tuple(map(int, indexes))


class NamesField(_ListField):
    widget = forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})

    def clean(self, value: Any) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(super().clean(value)))
        if len(names) > MAX_ENTRIES:
            raise forms.ValidationError(f"Enter at most {MAX_ENTRIES} names.")
        return names


class AddressesField(_ListField):
    separator = "\n"
    widget = forms.Textarea(
        attrs={"rows": 2, "class": "code", "spellcheck": "false", "placeholder": "http://127.0.0.1:8000"}
    )


class EnvironmentField(_TextField):
    """Field for NAME=VALUE lines; profile_problems checks which names may be set."""

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
            name, equals, content = (part.strip() for part in line.partition("="))
            if not equals or not name:
                raise forms.ValidationError(f"Enter each variable as NAME=VALUE; this line isn't: {line[:80]}")
            if name in variables:
                raise forms.ValidationError(f"{name[:80]} is set twice.")
            variables[name] = content
        return variables

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return "\n".join(f"{name}={content}" for name, content in value.items())
        return value


class JsonObjectField(forms.CharField):
    """A field for a JSON object with optional comments; its value is None if it is empty."""

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
            raise forms.ValidationError("Enter a JSON object: { … }.")
        return tree or None

    def prepare_value(self, value: Any) -> Any:
        return json.dumps(value, indent=2) if isinstance(value, Mapping) else value


class YesNoField(forms.ChoiceField):
    """A field for a choice of yes, no, or the device's default."""

    def __init__(self, **kwargs: Any) -> None:
        choices = (("", "Auto"), ("on", "On"), ("off", "Off"))
        super().__init__(choices=choices, **{**kwargs, "required": False})

    def clean(self, value: Any) -> bool | None:
        return {"on": True, "off": False}.get(str(super().clean(value)))

    def prepare_value(self, value: Any) -> Any:
        return {True: "on", False: "off"}.get(value, "" if value is None else value)
