"""The fields of a run's limits and of the rules that end it early."""

from __future__ import annotations

from typing import Any

from django import forms

from runs.launch.new_run.fields.choice_fields import bounds
from workers.contract.run.limits import LimitsSpec
from workers.contract.run.settings import section_of

LIMIT_FIELDS = (
    *("limit_hours", "limit_tokens", "limit_money"),
    *("stop_metric", "stop_steps", "stop_higher"),
    *("bound_metric", "bound_above", "bound_value"),
    *("stop_gain", "bound_steps"),
)
TOGETHER = (
    ("stop_metric", "stop_steps", "Enter for how many steps it may fail to improve."),
    ("stop_steps", "stop_metric", "Enter the metric that has to improve."),
    ("bound_metric", "bound_value", "Enter the bound."),
    ("bound_value", "bound_metric", "Enter the metric that must not cross it."),
    ("bound_steps", "bound_metric", "Enter the metric that must not cross the bound."),
)
"""(the filled field, the field that it needs, the error shown beside the latter)"""


class LimitFields(forms.Form):
    limit_hours = forms.FloatField(
        label="Hours",
        required=False,
        **bounds("limit_hours"),
        help_text="The run saves and ends after so many hours on its host, over all attempts.",
    )
    limit_tokens = forms.IntegerField(
        label="Tokens",
        required=False,
        **bounds("limit_tokens"),
        help_text="Prompts and completions together, as num_tokens counts them.",
    )
    limit_money = forms.FloatField(
        label="Money",
        required=False,
        **bounds("limit_money"),
        help_text="In the currency of the host: its price per GPU-hour, times the GPUs.",
    )
    stop_metric = forms.CharField(
        label="Early stop: metric",
        required=False,
        **bounds("stop_metric"),
        help_text="Such as eval_reward. The run saves and ends when it no longer improves.",
        widget=forms.TextInput(attrs={"list": "known-metrics", "spellcheck": "false"}),
    )
    stop_steps = forms.IntegerField(
        label="Early stop: steps", required=False, **bounds("stop_steps"), help_text="Without a new best value."
    )
    stop_gain = forms.FloatField(
        label="Early stop: least gain",
        required=False,
        **bounds("stop_gain"),
        help_text="A smaller gain is no improvement.",
    )
    stop_higher = forms.ChoiceField(
        label="Early stop: better is",
        required=False,
        choices=[("true", "higher"), ("false", "lower")],
        help_text="Whether a high or a low value is good.",
    )
    bound_metric = forms.CharField(
        label="Bound: metric",
        required=False,
        **bounds("bound_metric"),
        help_text="Such as kl or entropy. The run saves and ends when it crosses the bound.",
        widget=forms.TextInput(attrs={"list": "known-metrics", "spellcheck": "false"}),
    )
    bound_above = forms.ChoiceField(
        label="Bound: crossed when",
        required=False,
        choices=[("true", "above"), ("false", "below")],
        help_text="The metric is above or below it.",
    )
    bound_value = forms.FloatField(label="Bound: value", required=False, help_text="In the metric's own unit.")
    bound_steps = forms.IntegerField(
        label="Bound: steps in a row", required=False, **bounds("bound_steps"), help_text="Empty: at once."
    )

    def check_limits(self, values: dict[str, Any]) -> None:
        """Add an error for each half of a rule that is missing."""
        for given, needed, words in TOGETHER:
            if values.get(given) not in (None, "") and values.get(needed) in (None, "") and needed not in self.errors:
                self.add_error(needed, words)

    @property
    def limits(self) -> LimitsSpec:
        """Of the valid values."""
        limits: LimitsSpec = section_of("limits", getattr(self, "cleaned_data", {}))
        return limits
