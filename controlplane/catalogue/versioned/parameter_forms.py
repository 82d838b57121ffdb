"""Form rows for entries of a library, with a field for each parameter of the entry's schema."""

import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from django import forms

from controlplane.catalogue.datasets.models import CorpusVersion
from controlplane.catalogue.versioned import checking
from controlplane.platform.accounts.models import Secret
from controlplane.platform.confined.limits import NotFinished
from controlplane.platform.templatetags.figures import setting
from workers.rewards.parameters import Described

PARAM = "p_"
PREFIX = re.compile(r"[a-z0-9]{1,16}")
"""Pattern of the prefix of a row in a form that has several."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
TEXT_AREAS: dict[str | None, dict[str, Any]] = {
    "code": {"class": "code", "rows": 14, "data-code": "python"},
    "json": {"class": "code", "rows": 8},
    "pattern": {"class": "code", "rows": 2},
    "text": {"rows": 6},
}
"""Attributes of multi-line inputs, by the widget that a schema names."""
Choices = list[tuple[str, str]]


class TextField(forms.CharField):
    """Field for strings whose line breaks are line feeds, whatever the browser sends."""

    def to_python(self, value: Any) -> str:
        return str(super().to_python(value) or "").replace("\r\n", "\n").replace("\r", "\n")


class ChoiceParamField(forms.ChoiceField):
    """Choice field whose value the entry validates."""

    def valid_value(self, value: Any) -> bool:
        return True


class StoredChoiceField(ChoiceParamField):
    """Choice field for stored rows, by name; a deleted row stays selected until another is chosen."""

    def __init__(self, *, stored: Callable[[], Choices], **kwargs: Any) -> None:
        self._stored = stored
        super().__init__(choices=stored, **kwargs)

    def prepare_value(self, value: Any) -> Any:
        stored_choices = self._stored()
        is_stored = not value or value in [name for name, _ in stored_choices]
        self.choices = (
            stored_choices if is_stored else [*stored_choices, (value, f"{value} (deleted)")]
        )  # saves a query
        return value


def endpoints() -> Choices:
    """List the endpoints of the secrets page as choices."""
    names = Secret.objects.filter(kind=Secret.Kind.ENDPOINT).order_by("name").values_list("name", "address")
    return [("", "choose an endpoint"), *((name, f"{name} · {urlsplit(address).netloc}") for name, address in names)]


def corpora() -> Choices:
    """List the corpora that a search can use as choices."""
    ready = CorpusVersion.objects.filter(status=CorpusVersion.READY, archived_at=None).select_related("corpus")
    return [
        ("", "choose a corpus"),
        *((str(version), f"{version} · {version.documents:,} documents") for version in ready),
    ]


STORED: dict[str | None, Callable[[], Choices]] = {"secret": endpoints, "corpus": corpora}
"""Functions that return the choices of a parameter, by its widget."""
_REQUIRED_WIDGETS = ("corpus",)
"""Widgets in which a choice is required."""


class ParametersForm(forms.Form):
    """Form of an entry's parameters, to which an editor's rows add their own fields."""

    def __init__(self, entry: Described, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.entry = entry
        for parameter in entry.schema():
            self.fields[PARAM + parameter["name"]] = _field(parameter)

    @property
    def params(self) -> list[forms.BoundField]:
        """Fields of the parameters that the page may collapse."""
        return [self[name] for name in self.fields if name.startswith(PARAM) and not self._is_code(name)]

    @property
    def code(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if self._is_code(name)]

    @property
    def needed(self) -> bool:
        """True if the user has to enter a value, since the defaults aren't valid."""
        has_required_choice = any(parameter["widget"] in _REQUIRED_WIDGETS for parameter in self.entry.schema())
        return has_required_choice or bool(self.entry.check(self.entry.defaults()))

    @property
    def wrong_inside(self) -> bool:
        """True if a collapsible parameter has an error."""
        return any(field.errors for field in self.params)

    @property
    def changed(self) -> str:
        """Description of the collapsed parameters that differ from their defaults."""
        defaults = self.entry.defaults()
        current = self.current_params().items()
        phrases = [f"{name.replace('_', ' ')} {setting(v)}" for name, v in current if v != defaults.get(name)]
        return ", ".join(p if len(p) <= 40 else f"{p[:39]}…" for p in phrases if "\n" not in p)

    def current_params(self) -> dict[str, Any]:
        """Return the parameters as submitted or filled in; {} while there are errors."""
        if not self.is_bound:
            return params_of({name: self.initial.get(name) for name in self.fields})
        return params_of(self.cleaned_data) if self.is_valid() else {}

    def _is_code(self, name: str) -> bool:
        return "data-code" in self.fields[name].widget.attrs

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        try:
            problems = checking.problems(self.entry, params_of(fields))
        except NotFinished as error:
            self.add_error(None, str(error))
            return fields
        for problem in problems:
            name, message = split_problem(self.entry, problem)
            self.add_error(PARAM + name if name else None, sentence(message))
        return fields

    def refuse(self, reason: str) -> None:
        """Add an error to the code field, which only admins may edit, or to the whole form."""
        fields = [PARAM + parameter["name"] for parameter in self.entry.schema() if parameter["widget"] == "code"]
        self.add_error(fields[0] if fields else None, reason)


def split_problem(entry: Described, problem: str) -> tuple[str, str]:
    """Split a problem of Described.check into its parameter ("" for the whole entry) and the message."""
    name, _, message = problem.partition(": ")
    return (name, message) if name in entry.defaults() else ("", problem)


def sentence(message: str) -> str:
    """Return a message with a capital first letter and a full stop; the rest may quote text and is unchanged."""
    return message[:1].upper() + message[1:].removesuffix(".") + "."


def new_prefix() -> str:
    return "c" + secrets.token_hex(4)


def params_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(PARAM): value for name, value in fields.items() if name.startswith(PARAM)}


def label(name: str) -> str:
    """Return the label of a parameter, with its unit."""
    for suffix, unit in (("_mb", "MiB"), ("_s", "s")):
        if name.endswith(suffix):
            name = f"{name.removesuffix(suffix)} ({unit})"
    return name[:1].upper() + name[1:].replace("_", " ")


def _field(entry: Mapping[str, Any]) -> forms.Field:
    options = {"label": label(entry["name"]), "help_text": entry["help"]}
    if entry["type"] == "bool":
        return forms.BooleanField(required=False, **options)
    if entry["choices"] is not None:
        return ChoiceParamField(choices=[(c, c.capitalize()) for c in entry["choices"]], **options)
    limits = {name: entry[name] for name in ("min", "max") if entry[name] is not None}
    if entry["type"] == "int":
        return forms.IntegerField(widget=forms.NumberInput(attrs=limits), **options)
    if entry["type"] == "float":
        return forms.FloatField(widget=forms.NumberInput(attrs={"step": "any", **limits}), **options)
    if stored := STORED.get(entry["widget"]):
        return StoredChoiceField(stored=stored, required=entry["widget"] in _REQUIRED_WIDGETS, **options)
    longest = {"maxlength": entry["longest"]}
    if attrs := TEXT_AREAS.get(entry["widget"]):
        area = forms.Textarea(attrs={"spellcheck": "false", **longest, **attrs})
        return TextField(required=False, strip=False, widget=area, **options)
    return TextField(required=False, strip=False, widget=forms.TextInput(attrs=longest), **options)
