"""The editor of a reward config, built from the library's schemas."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import QueryDict

from controlplane.catalogue.rewards import saving
from controlplane.catalogue.rewards.balance import Balance, balance, describe_range, expected_range
from controlplane.catalogue.rewards.models import AGGREGATIONS, FAILED_SHARE, RewardConfig, RewardVersion
from controlplane.catalogue.rewards.saving import RewardComposition
from controlplane.catalogue.versioned.editing import ItemEditor, ItemForm, PartForm, rows_from, rows_of, unused_name
from controlplane.catalogue.versioned.parameter_forms import PARAM, new_prefix, params_of
from workers.contract.run import row_names
from workers.contract.run.spec import RewardSpec
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Reward

AGGREGATION_WORDS = ("weighted sum, then normalized", "each normalized, then weighted sum")
WHOLE, TURNS = "whole", "turns"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


class ConfigForm(ItemForm):
    """Form of the config's own columns, and of a version's settings other than its components."""

    aggregation = forms.ChoiceField(
        label="Aggregation",
        choices=zip(AGGREGATIONS, AGGREGATION_WORDS, strict=True),
        initial=AGGREGATIONS[0],
        required=False,
        help_text="TRL's multi_objective_aggregation. If each is normalized, only weights matter, not scales.",
    )
    failed_share = forms.FloatField(
        label="Failure threshold (share of rows)",
        min_value=0.01,
        max_value=1,
        initial=FAILED_SHARE,
        required=False,
        widget=forms.NumberInput(attrs={"step": "any"}),
        help_text="Ends the run if a component fails on more than this share of its recent rows; 1 never ends it.",
    )

    class Meta:
        model = RewardConfig
        fields = ("name", "description")
        error_messages = {"name": {"unique": "A reward config with this name already exists."}}
        widgets = {"description": forms.TextInput()}

    def clean_aggregation(self) -> str:
        return str(self.cleaned_data["aggregation"] or AGGREGATIONS[0])

    def clean_failed_share(self) -> float:
        share = self.cleaned_data["failed_share"]
        return FAILED_SHARE if share is None else float(share)


class ComponentForm(PartForm):
    """Form of a component: its name, its weight, and a field for each parameter of its function."""

    name = forms.CharField(max_length=40, help_text="The title of its chart; also sets its color.")
    weight = forms.FloatField(
        min_value=-1e6, max_value=1e6, widget=forms.NumberInput(attrs={"step": "any"}), help_text="0 only records it."
    )
    scores = forms.ChoiceField(
        choices=((WHOLE, "the whole completion"), (TURNS, "each turn")),
        initial=WHOLE,
        required=False,
        help_text="Each turn: in a run with an environment, a turn’s score is credited to its own tokens.",
    )

    applies_to = forms.CharField(
        label="Only for",
        max_length=8000,
        required=False,
        widget=forms.TextInput(attrs={"list": "row-names", "autocomplete": "off", "placeholder": "all rows"}),
        help_text="Datasets, sources or tags, separated by commas. Other rows get no score from it.",
    )

    def __init__(self, reward: Reward, *args: Any, **kwargs: Any) -> None:
        super().__init__(reward, *args, **kwargs)
        self.reward = reward
        if not reward.per_turn:
            del self.fields["scores"]

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if not _NAME.fullmatch(name):
            raise forms.ValidationError("Enter letters, digits, - and _, starting with a letter.")
        return name

    def clean_applies_to(self) -> tuple[str, ...]:
        names = names_in(self.cleaned_data["applies_to"])
        if found := " ".join(row_names.problems(names)):
            raise forms.ValidationError(found)
        return names

    def current_spec(self) -> RewardSpec | None:
        """Build the component from the form's current state, submitted or not; None while it has errors."""
        if not self.is_bound:
            values = {name: self.initial.get(name) for name in self.fields}
            weight = float(values["weight"] or 0)
            per_turn, applies_to = _per_turn(values), names_in(str(values["applies_to"] or ""))
            return RewardSpec(str(values["name"]), self.reward.key, weight, params_of(values), per_turn, applies_to)
        return self.spec() if self.is_valid() else None

    @property
    def span(self) -> str:
        """Description of the component's range of scores with its current parameters."""
        spec = self.current_spec()
        return describe_range(*(expected_range(spec) if spec else self.reward.range))

    def spec(self) -> RewardSpec:
        fields = self.cleaned_data
        return RewardSpec(
            name=fields["name"],
            function=self.reward.key,
            weight=fields["weight"],
            params=params_of(fields),
            per_turn=_per_turn(fields),
            applies_to=fields["applies_to"],
        )


@dataclass
class RewardEditor(ItemEditor[ComponentForm]):
    form: ConfigForm
    model = RewardVersion

    def composition_problem(self, valid: bool) -> str:
        if not self.rows:
            return "Add at least one component: a run needs something to learn from."
        if valid and not any(form.cleaned_data["weight"] for form in self.rows):
            return "Every weight is 0, so nothing would be learned. Give at least one component a weight."
        return ""

    def check_names(self) -> None:
        names = Counter(form.cleaned_data.get("name") for form in self.rows)
        for form in self.rows:
            if names[form.cleaned_data.get("name")] > 1 and "name" not in form.errors:
                form.add_error("name", "Another component has this name, so their charts would be merged.")

    def balance(self) -> Balance:
        """Compute the balance of the components that are currently valid, submitted or not."""
        specs = [form.current_spec() for form in self.rows]
        return balance(specs, str(self.form["aggregation"].value() or AGGREGATIONS[0]))

    def composition(self) -> RewardComposition:
        fields = self.form.cleaned_data
        parts = [saving.part_of(form.spec()) for form in self.rows]
        return RewardComposition(parts, fields["aggregation"], fields["failed_share"])


def editor_of(version: RewardVersion) -> RewardEditor:
    """Return an editor filled in from a version; components that the library no longer has are omitted and reported."""
    rows, problem = rows_of(version.components, RewardSpec, filled_row)
    initial = {"aggregation": version.aggregation, "failed_share": version.failed_share, "based_on": version.number}
    return RewardEditor(ConfigForm(instance=version.config, initial=initial), rows, problem)


def editor_from(post: QueryDict, config: RewardConfig | None = None) -> RewardEditor:
    return RewardEditor(ConfigForm(post, instance=config), components_from(post))


def components_from(post: QueryDict) -> list[ComponentForm]:
    return rows_from(post, LIBRARY, ComponentForm)


def filled_row(spec: RewardSpec) -> ComponentForm:
    reward = LIBRARY[spec.function]
    values = {PARAM + name: value for name, value in (reward.defaults() | spec.params).items()}
    weight = int(spec.weight) if float(spec.weight).is_integer() else spec.weight  # as people write it
    scores = TURNS if spec.per_turn else WHOLE
    initial = {"name": spec.name, "weight": weight, "scores": scores, "applies_to": ", ".join(spec.applies_to)} | values
    return ComponentForm(reward, prefix=new_prefix(), initial=initial)


def new_row(key: str, used: set[str], replaced: Mapping[str, Any] | None = None) -> ComponentForm:
    """Return a row for a function of the library, with an unused name. It keeps the name and shared parameters of the
    row that it replaces, whose values are `replaced`."""
    if replaced:
        fields = [PARAM + entry["name"] for entry in LIBRARY[key].schema()]
        applies_to = names_in(str(replaced.get("applies_to", "")))
        per_turn = replaced.get("scores") == TURNS
        row = filled_row(RewardSpec(str(replaced.get("name", key)), key, per_turn=per_turn, applies_to=applies_to))
        row.initial = {
            **row.initial,
            **{name: replaced.get(name, "") for name in fields if name in replaced or row.initial[name] is True},
        }
        return row
    return filled_row(RewardSpec(unused_name(key, used), key))


def names_in(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()))


def _per_turn(fields: Mapping[str, Any]) -> bool:
    return bool(fields.get("scores") == TURNS)
