"""The editor of a reward config: a form for the config, and one for each component, drawn from the library's schemas.

Rows come and go in the browser, so each has a random prefix; the hidden field `row` repeats them in their order.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import QueryDict

from controlplane.rewards.models import RewardConfig
from workers.contract import ContractError, RewardSpec, from_dict, to_dict
from workers.rewards import LIBRARY, Reward

MOST_COMPONENTS = 24
PARAM = "p_"
_PREFIX = re.compile(r"[a-z0-9]{1,16}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class ConfigForm(forms.ModelForm):  # type: ignore[type-arg]  # subscriptable for the type checker only
    class Meta:
        model = RewardConfig
        fields = ("name", "description")
        widgets = {"description": forms.TextInput()}

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if _CONTROL.search(name):
            raise forms.ValidationError("A name has no control characters.")
        return name


class ComponentForm(forms.Form):
    """One component: its name, its weight, and a field for each parameter of its function."""

    name = forms.CharField(max_length=40, help_text="Its chart and its colour go by this name.")
    weight = forms.FloatField(
        min_value=-1e6, max_value=1e6, widget=forms.NumberInput(attrs={"step": "any"}), help_text="0: only watched."
    )

    def __init__(self, reward: Reward, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reward = reward
        for entry in reward.schema():
            self.fields[PARAM + entry["name"]] = _field(entry)

    @property
    def params(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name.startswith(PARAM)]

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if not _NAME.fullmatch(name):
            raise forms.ValidationError("Letters, digits, - and _, beginning with a letter.")
        return name

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        if not self.errors:
            for problem in self.reward.check(_params(fields)):
                name, _, words = problem.partition(": ")
                field = PARAM + name if PARAM + name in self.fields else None
                self.add_error(field, (words or problem).capitalize() + ".")
        return fields

    def spec(self) -> RewardSpec:
        fields = self.cleaned_data
        return RewardSpec(
            name=fields["name"], function=self.reward.key, weight=fields["weight"], params=_params(fields)
        )


@dataclass
class Editor:
    """The config's form and its components, as one thing that is valid or not."""

    config: ConfigForm
    components: list[ComponentForm]
    problem: str = ""

    def is_valid(self) -> bool:
        valid = [self.config.is_valid(), *(form.is_valid() for form in self.components)]
        self._check_names()
        if not self.components:
            self.problem = "Add at least one component: a run needs something to learn from."
        elif all(valid) and not any(form.cleaned_data["weight"] for form in self.components):
            self.problem = "Every weight is 0, so nothing would be learned. Give one component a weight."
        return all(valid) and not self.problem and not any(form.errors for form in self.components)

    def _check_names(self) -> None:
        names = Counter(form.cleaned_data.get("name") for form in self.components)
        for form in self.components:
            if names[form.cleaned_data.get("name")] > 1 and "name" not in form.errors:
                form.add_error("name", "Another component has this name; their charts would become one.")

    def save(self, owner: Any) -> RewardConfig:
        config: RewardConfig = self.config.save(commit=False)
        config.components = [to_dict(form.spec()) for form in self.components]
        if config.pk is None:
            config.owner = owner
            config.save()
        else:
            config.save(update_fields=["name", "description", "components"])
        return config


def editor_of(config: RewardConfig) -> Editor:
    """The editor as a saved config fills it; components that the library no longer has are left out, and said."""
    forms_, lost = [], []
    for part in config.components:
        try:
            spec = from_dict(RewardSpec, part)
            forms_.append(filled(spec))
        except (ContractError, KeyError):
            lost.append(str(part.get("name") if isinstance(part, dict) else part))
    problem = f"No longer in the library, and gone when you save: {', '.join(lost)}." if lost else ""
    return Editor(ConfigForm(instance=config), forms_, problem)


def editor_from(post: QueryDict, config: RewardConfig | None = None) -> Editor:
    return Editor(ConfigForm(post, instance=config), components_from(post))


def components_from(post: QueryDict) -> list[ComponentForm]:
    """The component rows of a form that was sent. A row of an unknown function is not one of ours: it is dropped."""
    prefixes = [p for p in dict.fromkeys(post.getlist("row")) if _PREFIX.fullmatch(p)]
    return [
        ComponentForm(LIBRARY[key], post, prefix=prefix)
        for prefix in prefixes[:MOST_COMPONENTS]
        if (key := post.get(f"{prefix}-function", "")) in LIBRARY
    ]


def filled(spec: RewardSpec) -> ComponentForm:
    reward = LIBRARY[spec.function]
    values = {PARAM + name: value for name, value in (reward.defaults() | spec.params).items()}
    return ComponentForm(reward, prefix=_prefix(), initial={"name": spec.name, "weight": spec.weight} | values)


def fresh(key: str, taken: set[str]) -> ComponentForm:
    """A new row for a function of the library, with a name that no other row has."""
    names = [key, *(f"{key}_{n}" for n in range(2, len(taken) + 3))]
    return filled(RewardSpec(name=next(name for name in names if name not in taken), function=key))


def _prefix() -> str:
    return "c" + secrets.token_hex(4)


def _params(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(PARAM): value for name, value in fields.items() if name.startswith(PARAM)}


def _field(entry: Mapping[str, Any]) -> forms.Field:
    """A form field for one entry of a reward's schema."""
    label = entry["name"].replace("_", " ").capitalize()
    common = {"label": label, "help_text": entry["help"]}
    if entry["type"] == "bool":
        return forms.BooleanField(required=False, **common)
    if entry["choices"] is not None:
        return forms.ChoiceField(choices=[(c, c.capitalize()) for c in entry["choices"]], **common)
    if entry["type"] == "int":
        return forms.IntegerField(min_value=entry["min"], max_value=entry["max"], **common)
    if entry["type"] == "float":
        widget = forms.NumberInput(attrs={"step": "any"})
        return forms.FloatField(min_value=entry["min"], max_value=entry["max"], widget=widget, **common)
    return forms.CharField(required=False, strip=False, max_length=200, **common)
