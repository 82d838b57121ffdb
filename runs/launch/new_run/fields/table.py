"""The fields of the New run page: fields.toml, with the types, bounds and defaults of the contract's table."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django import forms

from workers.contract.run.settings import BY_NAME
from workers.contract.stack.tool_templates import READABLE_TEMPLATES

FILE = Path(__file__).with_name("fields.toml")
MAX_INT = 10**9
TYPES = {"int": int, "float": float, "bool": bool, "str": str}
JSON_TYPES: dict[type | None, str] = {
    int: "integer", float: "number", bool: "boolean", str: "string", None: "integer"
}  # fmt: skip
TOOL_TEMPLATES = (("", "the model’s own"), *((name, f"{name} (TRL’s)") for name in READABLE_TEMPLATES))


@dataclass(frozen=True)
class LaunchField:
    name: str
    label: str
    help: str
    kind: type | None
    """Type of the field's value; None for a catalogue row, given by its id."""
    argument: bool = False
    """True if the field is an argument of GRPOConfig, named as in TRL."""
    required: bool = False
    default: Any = None
    """Initial value; None if the field is empty at first."""
    low: float | None = None
    high: float | None = None
    longest: int | None = None
    choices: tuple[tuple[str, str], ...] = ()
    empty: str = ""
    missing: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def form_arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {"label": self.label, "help_text": self.help, "required": self.required}
        return arguments | ({"error_messages": {"required": self.missing}} if self.missing else {})

    def form_field(self) -> forms.Field:
        common_arguments = {**self.form_arguments, "initial": self.default}
        attributes = dict(self.attributes)
        if self.choices:
            return forms.ChoiceField(choices=self.choices, **common_arguments)
        if self.kind is bool:
            return forms.BooleanField(**common_arguments)
        if self.kind is int:
            low, high = (None if bound is None else int(bound) for bound in (self.low, self.high))
            number = forms.NumberInput(attrs=attributes)
            return forms.IntegerField(**common_arguments, min_value=low, max_value=high or MAX_INT, widget=number)
        if self.kind is float:
            # A text input, so that 1e-6 can be entered and stays as entered. It has no autocomplete="off", because
            # browsers would then clear the field on Back.
            decimal = forms.TextInput(attrs={"inputmode": "decimal", **attributes})
            return forms.FloatField(**common_arguments, min_value=self.low, max_value=self.high, widget=decimal)
        text_input = forms.Textarea if "rows" in attributes else forms.TextInput
        return forms.CharField(**common_arguments, max_length=self.longest, widget=text_input(attrs=attributes))

    def json_schema(self) -> dict[str, Any]:
        default = float(self.default) if self.kind is float and self.default is not None else self.default
        bounds = {"minimum": self.low, "maximum": self.high, "maxLength": self.longest, "default": default}
        values = [value for value, _ in self.choices]
        schema: dict[str, Any] = {"type": JSON_TYPES[self.kind], "title": self.label, "description": self.help}
        schema |= {keyword: bound for keyword, bound in bounds.items() if bound is not None}
        return schema | ({"enum": values} if values else {})


def _field(name: str, entry: dict[str, Any]) -> LaunchField:
    setting = BY_NAME.get(name)
    argument = bool(entry.get("argument"))
    kind = TYPES.get(entry.get("type", "")) or (setting.type if setting else None)
    default = entry.get("default", setting.default if setting and "choices" not in entry else None)
    if isinstance(default, tuple):
        kind, default = str, ", ".join(default)
    if default is False or default == "" or "placeholder" in entry:
        default = None
    choices = tuple((value, value) if isinstance(value, str) else tuple(value) for value in entry.get("choices", ()))
    return LaunchField(
        name=name,
        label=entry["label"],
        help=entry["help"],
        kind=kind if kind in TYPES.values() or kind is None else str,
        argument=argument,
        required=entry.get("required", argument),
        default=default,
        **{bound: entry.get(bound, getattr(setting, bound, None)) for bound in ("low", "high", "longest")},
        choices=TOOL_TEMPLATES if name == "tool_template" else choices,
        empty=entry.get("empty", ""),
        missing=entry.get("missing", ""),
        attributes=_attributes(entry),
    )


def _attributes(entry: Mapping[str, Any]) -> dict[str, Any]:
    attributes = {name: entry[name] for name in ("list", "placeholder", "rows") if name in entry}
    attributes |= {"class": "code"} if entry.get("code") else {}
    return attributes | ({"spellcheck": "false"} if {"class", "list", "rows"} & attributes.keys() else {})


CARDS = {
    card: tuple(_field(name, entry) for name, entry in fields.items())
    for card, fields in tomllib.loads(FILE.read_text()).items()
}
"""Card or fold -> its fields, in the page's order."""
BY_FIELD = {launch_field.name: launch_field for fields in CARDS.values() for launch_field in fields}
ARGUMENTS = tuple(launch_field for launch_field in BY_FIELD.values() if launch_field.argument)
FOLDED_CARDS = tuple(card for card in CARDS if card[0].isupper())


def names_of(card: str) -> tuple[str, ...]:
    return tuple(launch_field.name for launch_field in CARDS[card])
