"""The editor of a reward config: a form for the config and one for each component, built from the library's schemas.

Rows are added and removed in the browser, so each has a random prefix; the hidden field `row` repeats them in order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.db import transaction
from django.http import QueryDict

from controlplane.catalogue.rewards import saving
from controlplane.catalogue.rewards.balance import Balance, balance, expected, in_words
from controlplane.catalogue.rewards.models import AGGREGATIONS, FAILED_SHARE, RewardConfig, RewardVersion
from controlplane.catalogue.rewards.saving import Composition
from controlplane.catalogue.versioned.parameter_forms import (
    CONTROL,
    PARAM,
    PREFIX,
    ParametersForm,
    new_prefix,
    params_of,
)
from workers.contract.run.spec import RewardSpec
from workers.contract.wire.documents import ContractError, from_dict
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Reward

MOST_COMPONENTS = 24
_MOST_ROWS = 4 * MOST_COMPONENTS
"""Rows to read, so that a user with too many loses none along with the error."""
AGGREGATION_WORDS = ("weighted sum, then normalized", "each normalized, then weighted sum")
WHOLE, TURNS = "whole", "turns"
NAME_TAKEN = "A reward config with this name already exists."
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


class ConfigForm(forms.ModelForm):  # type: ignore[type-arg]  # subscriptable for the type checker only
    """The config's own columns, and a version's settings other than its components."""

    aggregation = forms.ChoiceField(
        label="Aggregation",
        choices=zip(AGGREGATIONS, AGGREGATION_WORDS, strict=True),
        initial=AGGREGATIONS[0],
        required=False,
        help_text="TRL's multi_objective_aggregation. Normalized each: scales don't matter, only weights do.",
    )
    failed_share = forms.FloatField(
        label="Failure threshold (share of rows)",
        min_value=0.01,
        max_value=1,
        initial=FAILED_SHARE,
        required=False,
        widget=forms.NumberInput(attrs={"step": "any"}),
        help_text="Ends the run when a component fails on more than this share of its recent rows. 1: never.",
    )
    note = forms.CharField(
        label="What changes",
        max_length=200,
        required=False,
        help_text="Shown beside the version.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    based_on = forms.IntegerField(required=False, widget=forms.HiddenInput)

    class Meta:
        model = RewardConfig
        fields = ("name", "description")
        error_messages = {"name": {"unique": NAME_TAKEN}}
        widgets = {"description": forms.TextInput()}

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if CONTROL.search(name):
            raise forms.ValidationError("A name can't contain control characters.")
        return name

    def clean_aggregation(self) -> str:
        return str(self.cleaned_data["aggregation"] or AGGREGATIONS[0])

    def clean_failed_share(self) -> float:
        share = self.cleaned_data["failed_share"]
        return FAILED_SHARE if share is None else float(share)


class ComponentForm(ParametersForm):
    """A component: its name, its weight, and a field for each parameter of its function."""

    name = forms.CharField(max_length=40, help_text="Names its chart and sets its color.")
    weight = forms.FloatField(
        min_value=-1e6, max_value=1e6, widget=forms.NumberInput(attrs={"step": "any"}), help_text="0: recorded only."
    )
    scores = forms.ChoiceField(
        choices=((WHOLE, "the whole completion"), (TURNS, "each turn")),
        initial=WHOLE,
        required=False,
        help_text="Each turn: in a run with an environment, a turn’s score is credited to its own tokens.",
    )

    def __init__(self, reward: Reward, *args: Any, **kwargs: Any) -> None:
        super().__init__(reward, *args, **kwargs)
        self.reward = reward
        if not reward.per_turn:
            del self.fields["scores"]

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if not _NAME.fullmatch(name):
            raise forms.ValidationError("Letters, digits, - and _, starting with a letter.")
        return name

    def standing(self) -> RewardSpec | None:
        """The component in its current state, sent or not; None while it has errors."""
        if not self.is_bound:
            values = {name: self.initial.get(name) for name in self.fields}
            weight = float(values["weight"] or 0)
            return RewardSpec(str(values["name"]), self.reward.key, weight, params_of(values), _per_turn(values))
        return self.spec() if self.is_valid() else None

    @property
    def span(self) -> str:
        """The range of its scores with its current parameters, in words."""
        spec = self.standing()
        return in_words(*(expected(spec) if spec else self.reward.range))

    def spec(self) -> RewardSpec:
        fields = self.cleaned_data
        return RewardSpec(
            name=fields["name"],
            function=self.reward.key,
            weight=fields["weight"],
            params=params_of(fields),
            per_turn=_per_turn(fields),
        )


@dataclass
class RewardEditor:
    """The config's form and its components, validated together."""

    config: ConfigForm
    components: list[ComponentForm]
    problem: str = ""

    def is_valid(self) -> bool:
        valid = [self.config.is_valid(), *(form.is_valid() for form in self.components)]
        self._check_names()
        if not self.components:
            self.problem = "Add at least one component: a run needs something to learn from."
        elif len(self.components) > MOST_COMPONENTS:
            self.problem = f"At most {MOST_COMPONENTS} components, but there are {len(self.components)}. Remove some."
        elif all(valid) and not any(form.cleaned_data["weight"] for form in self.components):
            self.problem = "Every weight is 0, so nothing would be learned. Give one component a weight."
        return all(valid) and not self.problem and not any(form.errors for form in self.components)

    def _check_names(self) -> None:
        names = Counter(form.cleaned_data.get("name") for form in self.components)
        for form in self.components:
            if names[form.cleaned_data.get("name")] > 1 and "name" not in form.errors:
                form.add_error("name", "Another component has this name; their charts would merge.")

    @property
    def wrong(self) -> list[tuple[str, str, str]]:
        """(id on the page, label, sentences) of each field with an error: the page is longer than a screen."""
        mistakes = [
            (self.config[name].id_for_label, str(self.config[name].label), errors)
            for name, errors in _wrong(self.config)
        ]
        for form in self.components:
            row = str(form["name"].value() or form.reward.title)
            for name, errors in _wrong(form):
                what = str(form[name].label) if name in form.fields else ""
                mistakes.append((str(form.prefix), f"{row}, {what.lower()}" if what else row, errors))
        return [(place, what, " ".join(map(str, errors))) for place, what, errors in mistakes]

    def rebase(self, number: int) -> None:
        """Base the form on this version: the user was shown it, and the next save changes it."""
        self.config.data = {**dict(self.config.data.items()), "based_on": str(number)}

    def balance(self) -> Balance:
        """The balance of the components that are currently valid, whether the form was sent or not."""
        specs = [form.standing() for form in self.components]
        return balance(specs, str(self.config["aggregation"].value() or AGGREGATIONS[0]))

    def composition(self) -> Composition:
        """The composition of a valid editor."""
        fields = self.config.cleaned_data
        parts = [saving.part_of(form.spec()) for form in self.components]
        return Composition(parts, fields["aggregation"], fields["failed_share"])

    def save(self, by: Any) -> tuple[RewardVersion, bool]:
        """The version with these scores, and whether this call created it: name and description belong to the config.

        IntegrityError: the name is taken.
        """
        config, note = self.config.save(commit=False), self.config.cleaned_data["note"]
        if config.pk is None:
            columns = {"owner": by, "description": config.description, "note": note}
            return saving.make(config.name, self.composition(), **columns), True
        with transaction.atomic():
            config.save(update_fields=["name", "description"])
            return saving.save(config, self.composition(), by=by, note=note)


def editor_of(version: RewardVersion) -> RewardEditor:
    """The editor filled from a version; components that the library no longer has are left out and reported."""
    forms_, lost = [], []
    for part in version.components:
        try:
            spec = from_dict(RewardSpec, part)
            forms_.append(filled(spec))
        except (ContractError, KeyError):
            lost.append(str(part.get("name") if isinstance(part, dict) else part))
    problem = f"No longer in the library and removed when you save: {', '.join(lost)}." if lost else ""
    initial = {"aggregation": version.aggregation, "failed_share": version.failed_share, "based_on": version.number}
    return RewardEditor(ConfigForm(instance=version.config, initial=initial), forms_, problem)


def editor_from(post: QueryDict, config: RewardConfig | None = None) -> RewardEditor:
    return RewardEditor(ConfigForm(post, instance=config), components_from(post))


def components_from(post: QueryDict) -> list[ComponentForm]:
    """The component rows of a submitted form. Rows of unknown functions are dropped."""
    prefixes = [p for p in dict.fromkeys(post.getlist("row")) if PREFIX.fullmatch(p)]
    return [
        ComponentForm(LIBRARY[key], post, prefix=prefix)
        for prefix in prefixes[:_MOST_ROWS]
        if (key := post.get(f"{prefix}-function", "")) in LIBRARY
    ]


def filled(spec: RewardSpec) -> ComponentForm:
    reward = LIBRARY[spec.function]
    values = {PARAM + name: value for name, value in (reward.defaults() | spec.params).items()}
    weight = int(spec.weight) if float(spec.weight).is_integer() else spec.weight  # as people write it
    scores = TURNS if spec.per_turn else WHOLE
    initial = {"name": spec.name, "weight": weight, "scores": scores} | values
    return ComponentForm(reward, prefix=new_prefix(), initial=initial)


def fresh(key: str, used: set[str], like: Mapping[str, Any] | None = None) -> ComponentForm:
    """A new row for a function of the library, with an unused name. `like`: values of the row it replaces; the name and
    shared parameters are kept."""
    if like:
        fields = [PARAM + entry["name"] for entry in LIBRARY[key].schema()]
        row = filled(RewardSpec(str(like.get("name", key)), key, per_turn=like.get("scores") == TURNS))
        row.initial = {
            **row.initial,
            **{name: like.get(name, "") for name in fields if name in like or row.initial[name] is True},
        }
        return row
    names = [key, *(f"{key}_{n}" for n in range(2, len(used) + 3))]
    return filled(RewardSpec(name=next(name for name in names if name not in used), function=key))


def _wrong(form: forms.BaseForm) -> list[tuple[str, Any]]:
    return list(form.errors.items())


def _per_turn(fields: Mapping[str, Any]) -> bool:
    return bool(fields.get("scores") == TURNS)
