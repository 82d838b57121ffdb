"""The editor of an environment: forms for the environment, its limits and each part, built from the schemas."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import QueryDict

from controlplane.catalogue.environments.models import Environment, EnvironmentVersion
from controlplane.catalogue.environments.saving import EnvironmentComposition
from controlplane.catalogue.versioned import checking
from controlplane.catalogue.versioned.editing import ItemEditor, ItemForm, PartForm, rows_from, rows_of, unused_name
from controlplane.catalogue.versioned.parameter_forms import PARAM, new_prefix, params_of
from controlplane.platform.confined.limits import NotFinished
from workers.contract.run.episodes import EpisodeLimits, PartSpec
from workers.contract.wire.documents import to_dict
from workers.environments.entry import Entry, EntryKind
from workers.environments.library import LIBRARY
from workers.environments.signature import NAME_RULE, is_name

LIMITS = "limits"
_NUMBERS: dict[str, tuple[str, float, float, str]] = {
    "turns": ("Turns", 1, 200, "Maximum messages of the model in one episode."),
    "calls": ("Calls in one turn", 1, 64, "Maximum calls in one turn; the model gets an error for any others."),
    "output_tokens": ("Tokens of a result", 1, 32_768, "Longer results are truncated, and marked as truncated."),
    "call_s": ("Time for a call (s)", 0.1, 3600, "A longer call is stopped, and the model reads that it timed out."),
    "episode_s": ("Time for an episode (s)", 1, 86_400, "Includes the time in which the model generates."),
    "at_once": ("Concurrent calls on a host", 1, 128, "Maximum calls that run concurrently on the host."),
}
"""Form fields by limit, as (label, minimum, maximum, help text)."""
LIMIT_LABELS = {
    **{name: label for name, (label, *_) in _NUMBERS.items()},
    "count_outputs": "Results count against the completion's length",
}


class EnvironmentForm(ItemForm):
    class Meta:
        model = Environment
        fields = ("name", "description")
        error_messages = {"name": {"unique": "An environment with this name already exists."}}
        widgets = {"description": forms.TextInput()}


class LimitsForm(forms.Form):
    count_outputs = forms.BooleanField(
        label=LIMIT_LABELS["count_outputs"],
        required=False,
        help_text="Otherwise, only the model's own tokens do.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"prefix": LIMITS})
        count_outputs = self.fields.pop("count_outputs")
        defaults = EpisodeLimits()
        for name, (label, low, high, help_text) in _NUMBERS.items():
            is_whole = isinstance(getattr(defaults, name), int)
            widget = forms.NumberInput(attrs={"min": low, "max": high} | ({} if is_whole else {"step": "any"}))
            options: dict[str, Any] = {"min_value": low, "max_value": high, "help_text": help_text, "widget": widget}
            field_class: type[forms.IntegerField] = forms.IntegerField if is_whole else forms.FloatField
            self.fields[name] = field_class(label=label, **options)
        self.fields["count_outputs"] = count_outputs

    def limits(self) -> EpisodeLimits:
        return EpisodeLimits(**self.cleaned_data)


class EnvironmentPartForm(PartForm):
    """Form of a part, with the name by which the model calls it and a field for each parameter."""

    name = forms.CharField(max_length=64, required=False, help_text="The model calls it by this name.")
    entry: Entry

    def __init__(self, entry: Entry, *args: Any, **kwargs: Any) -> None:
        super().__init__(entry, *args, **kwargs)
        if entry.name_of is not None:
            del self.fields["name"]

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        if not is_name(name):
            raise forms.ValidationError(NAME_RULE)
        return name

    @property
    def shown_name(self) -> str:
        if "name" in self.fields:
            return super().shown_name
        params = self.current_params()
        return _derived_name(self.entry, params) if params else ""

    def spec(self) -> PartSpec:
        params = params_of(self.cleaned_data)
        return PartSpec(self.cleaned_data.get("name") or _derived_name(self.entry, params), self.entry.key, params)


@dataclass(kw_only=True)
class EnvironmentEditor(ItemEditor[EnvironmentPartForm]):
    limits: LimitsForm
    model = EnvironmentVersion

    def item_forms(self) -> Sequence[forms.BaseForm]:
        return (self.form, self.limits)

    def composition_problem(self, valid: bool) -> str:
        return "" if self.rows else "Add at least one part: a tool, a game or a server."

    def check_names(self) -> None:
        names = Counter(form.shown_name for form in self.rows)
        for form in self.rows:
            name = form.shown_name
            if name and names[name] > 1 and not form.errors:
                form.add_error("name" if "name" in form.fields else None, f"Another part is also called {name}.")
        for form in [form for form in self.rows if form.entry.kind is not EntryKind.TOOL][1:]:
            form.add_error(None, "There can be only one game or server. Remove this one or the other.")

    def composition(self) -> EnvironmentComposition:
        return EnvironmentComposition([to_dict(form.spec()) for form in self.rows], to_dict(self.limits.limits()))


def new_editor() -> EnvironmentEditor:
    return EnvironmentEditor(EnvironmentForm(), [], limits=_limits_form(EpisodeLimits()))


def editor_of(version: EnvironmentVersion) -> EnvironmentEditor:
    """Return an editor filled in from a version; parts that the library no longer has are omitted and reported."""
    rows, problem = rows_of(version.parts, PartSpec, filled_row)
    form = EnvironmentForm(instance=version.environment, initial={"based_on": version.number})
    return EnvironmentEditor(form, rows, problem, limits=_limits_form(version.episode_limits))


def editor_from(post: QueryDict, environment: Environment | None = None) -> EnvironmentEditor:
    return EnvironmentEditor(EnvironmentForm(post, instance=environment), parts_from(post), limits=LimitsForm(post))


def parts_from(post: QueryDict) -> list[EnvironmentPartForm]:
    return rows_from(post, LIBRARY, EnvironmentPartForm)


def filled_row(spec: PartSpec) -> EnvironmentPartForm:
    entry = LIBRARY[spec.function]
    initial = {PARAM + name: value for name, value in (entry.defaults() | spec.params).items()}
    return EnvironmentPartForm(entry, prefix=new_prefix(), initial={"name": spec.name} | initial)


def new_row(key: str, used_names: set[str]) -> EnvironmentPartForm:
    """Return a row for an entry of the library, with an unused name."""
    return filled_row(PartSpec(unused_name(key, used_names), key))


def _limits_form(limits: EpisodeLimits) -> LimitsForm:
    values = to_dict(limits)  # whole numbers without a decimal point
    return LimitsForm(initial={k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in values.items()})


def _derived_name(entry: Entry, params: Mapping[str, Any]) -> str:
    """Return the name that a part derives from its parameters, or "" if they are invalid or can't be judged now."""
    try:
        if entry.name_of is None or checking.problems(entry, params):
            return ""
        return checking.derived_name(entry.key, dict(params))
    except NotFinished:
        return ""
