"""The editor of an environment: a form for it, one for its limits, and one for each part, built from the schemas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from django import forms
from django.db import transaction
from django.http import QueryDict

from controlplane.catalogue.environments import saving
from controlplane.catalogue.environments.models import Environment, EnvironmentVersion
from controlplane.catalogue.environments.saving import Composition
from controlplane.catalogue.versioned.parameter_forms import (
    CONTROL,
    PARAM,
    PREFIX,
    ParametersForm,
    new_prefix,
    params_of,
)
from workers.contract.run.episodes import EpisodeLimits, PartSpec
from workers.contract.wire.documents import ContractError, from_dict, to_dict
from workers.environments.entry import Entry, EntryKind
from workers.environments.library import LIBRARY
from workers.environments.signature import NAME_RULE, is_name

MOST_PARTS = 24
_MOST_ROWS = 4 * MOST_PARTS
"""Rows to read, so that a user with too many loses none along with the error."""
NAME_TAKEN = "An environment with this name already exists."
LIMITS = "limits"
"""Prefix of the form of limits."""
_BOUNDS: dict[str, tuple[float, float, str]] = {
    "turns": (1, 200, "Messages of the model in one episode."),
    "calls": (1, 64, "Calls that are carried out in one turn; the rest get an error to read."),
    "output_tokens": (1, 32_768, "Of one result. What is longer is cut, and says so."),
    "call_s": (0.1, 3600, "For one call; then the model reads that it took too long."),
    "episode_s": (1, 86_400, "For one episode, the model's own time included."),
    "at_once": (1, 128, "Calls that run side by side on the host."),
}
"""Limit → smallest, largest, and what it bounds."""
LIMIT_LABELS = {
    "turns": "Turns",
    "calls": "Calls in one turn",
    "output_tokens": "Tokens of a result",
    "call_s": "Time for a call (s)",
    "episode_s": "Time for an episode (s)",
    "at_once": "Calls at once on a host",
    "count_outputs": "Results count against the completion's length",
}


class EnvironmentForm(forms.ModelForm):  # type: ignore[type-arg]  # subscriptable for the type checker only
    note = forms.CharField(
        label="What changes",
        max_length=200,
        required=False,
        help_text="Shown beside the version.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    based_on = forms.IntegerField(required=False, widget=forms.HiddenInput)

    class Meta:
        model = Environment
        fields = ("name", "description")
        error_messages = {"name": {"unique": NAME_TAKEN}}
        widgets = {"description": forms.TextInput()}

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if CONTROL.search(name):
            raise forms.ValidationError("A name can't contain control characters.")
        return name


class LimitsForm(forms.Form):
    count_outputs = forms.BooleanField(
        label=LIMIT_LABELS["count_outputs"],
        required=False,
        help_text="Otherwise only what the model writes does.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"prefix": LIMITS})
        last = self.fields.pop("count_outputs")
        defaults = EpisodeLimits()
        for name, (low, high, text) in _BOUNDS.items():
            whole = isinstance(getattr(defaults, name), int)
            number = forms.NumberInput(attrs={"min": low, "max": high} | ({} if whole else {"step": "any"}))
            shared: dict[str, Any] = {"min_value": low, "max_value": high, "help_text": text, "widget": number}
            kind: type[forms.IntegerField] = forms.IntegerField if whole else forms.FloatField
            self.fields[name] = kind(label=LIMIT_LABELS[name], **shared)
        self.fields["count_outputs"] = last

    def limits(self) -> EpisodeLimits:
        return EpisodeLimits(**self.cleaned_data)


class PartForm(ParametersForm):
    """A part: the name by which the model calls it, and a field for each parameter."""

    name = forms.CharField(max_length=64, required=False, help_text="By which the model calls it.")

    def __init__(self, entry: Entry, *args: Any, **kwargs: Any) -> None:
        super().__init__(entry, *args, **kwargs)
        self.of = entry
        if entry.name_of is not None:
            del self.fields["name"]

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        if not is_name(name):
            raise forms.ValidationError(NAME_RULE)
        return name

    @property
    def shown_name(self) -> str:
        """In its current state, sent or not."""
        if "name" in self.fields:
            return str(self["name"].value() or "")
        params = self.current_params()
        return _given_name(self.of, params) if params else ""

    def spec(self) -> PartSpec:
        params = params_of(self.cleaned_data)
        return PartSpec(self.cleaned_data.get("name") or _given_name(self.of, params), self.of.key, params)


@dataclass
class EnvironmentEditor:
    """The forms of an environment, validated together."""

    environment: EnvironmentForm
    limits: LimitsForm
    parts: list[PartForm]
    problem: str = ""

    def is_valid(self) -> bool:
        valid = [one.is_valid() for one in (self.environment, self.limits, *self.parts)]
        self._check_together()
        if not self.parts:
            self.problem = "Add at least one part: without any there is nothing to call or to play in."
        elif len(self.parts) > MOST_PARTS:
            self.problem = f"At most {MOST_PARTS} parts, but there are {len(self.parts)}. Remove some."
        return all(valid) and not self.problem and not any(form.errors for form in self.parts)

    def _check_together(self) -> None:
        names = Counter(form.shown_name for form in self.parts)
        for form in self.parts:
            name = form.shown_name
            if name and names[name] > 1 and not form.errors:
                form.add_error("name" if "name" in form.fields else None, f"Another part is called {name}, too.")
        for form in [one for one in self.parts if one.of.kind is not EntryKind.TOOL][1:]:
            form.add_error(None, "Only one part can be played in: a game or a server. Remove this one or the other.")

    @property
    def wrong(self) -> list[tuple[str, str, str]]:
        """(id on the page, label, sentences) of each field with an error: the page is longer than a screen."""
        mistakes = []
        for form in (self.environment, self.limits):
            for name, errors in form.errors.items():
                field = form[name] if name in form.fields else None
                mistakes.append((field.id_for_label if field else "editor", str(field.label) if field else "", errors))
        for row in self.parts:
            title = row.shown_name or row.of.title
            for name, errors in row.errors.items():
                what = f"{title}, {str(row[name].label).lower()}" if name in row.fields else title
                mistakes.append((str(row.prefix), what, errors))
        return [(place, what, " ".join(map(str, errors))) for place, what, errors in mistakes]

    def rebase(self, number: int) -> None:
        """Base the form on this version: the user was shown it, and the next save changes it."""
        self.environment.data = {**dict(self.environment.data.items()), "based_on": str(number)}

    def composition(self) -> Composition:
        """The composition of a valid editor."""
        return Composition([to_dict(form.spec()) for form in self.parts], to_dict(self.limits.limits()))

    def save(self, by: Any) -> tuple[EnvironmentVersion, bool]:
        """The version with this content, and whether this call created it.

        IntegrityError: the name is taken.
        """
        environment, note = self.environment.save(commit=False), self.environment.cleaned_data["note"]
        if environment.pk is None:
            columns = {"owner": by, "description": environment.description, "note": note}
            return saving.make(environment.name, self.composition(), **columns), True
        with transaction.atomic():
            environment.save(update_fields=["name", "description"])
            return saving.save(environment, self.composition(), by=by, note=note)


def new_editor() -> EnvironmentEditor:
    return EnvironmentEditor(EnvironmentForm(), _limits_form(EpisodeLimits()), [])


def editor_of(version: EnvironmentVersion) -> EnvironmentEditor:
    """The editor filled from a version; parts that the library no longer has are left out and reported."""
    rows, lost = [], []
    for part in version.parts:
        try:
            rows.append(filled(from_dict(PartSpec, part)))
        except (ContractError, KeyError):
            lost.append(str(part.get("name") if isinstance(part, dict) else part))
    problem = f"No longer in the library and removed when you save: {', '.join(lost)}." if lost else ""
    form = EnvironmentForm(instance=version.environment, initial={"based_on": version.number})
    return EnvironmentEditor(form, _limits_form(version.episode_limits), rows, problem)


def editor_from(post: QueryDict, environment: Environment | None = None) -> EnvironmentEditor:
    return EnvironmentEditor(EnvironmentForm(post, instance=environment), LimitsForm(post), parts_from(post))


def parts_from(post: QueryDict) -> list[PartForm]:
    """The rows of a submitted form. Rows of unknown functions are dropped."""
    prefixes = [p for p in dict.fromkeys(post.getlist("row")) if PREFIX.fullmatch(p)]
    return [
        PartForm(LIBRARY[key], post, prefix=prefix)
        for prefix in prefixes[:_MOST_ROWS]
        if (key := post.get(f"{prefix}-function", "")) in LIBRARY
    ]


def filled(spec: PartSpec) -> PartForm:
    entry = LIBRARY[spec.function]
    values = {PARAM + name: value for name, value in (entry.defaults() | spec.params).items()}
    return PartForm(entry, prefix=new_prefix(), initial={"name": spec.name} | values)


def fresh(key: str, used: set[str]) -> PartForm:
    """A new row for an entry of the library, with an unused name."""
    names = [key, *(f"{key}_{n}" for n in range(2, len(used) + 3))]
    return filled(PartSpec(next(name for name in names if name not in used), key))


def _limits_form(limits: EpisodeLimits) -> LimitsForm:
    values = to_dict(limits)  # whole numbers as people write them
    return LimitsForm(initial={k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in values.items()})


def limit_names() -> list[str]:
    return [field.name for field in fields(EpisodeLimits)]


def _given_name(entry: Entry, params: Mapping[str, Any]) -> str:
    """Check the parameters together, once each is valid."""
    if entry.name_of is None or entry.check(params):
        return ""
    return entry.name_of(entry.build(params))
