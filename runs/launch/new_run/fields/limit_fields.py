"""The fields of a run's limits and of the rules that end it early."""

from __future__ import annotations

from typing import Any

from django import forms

from workers.contract.run.limits import BeyondSpec, LimitsSpec, NoBetterSpec

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
        min_value=0.01,
        max_value=100_000,
        help_text="The run saves and ends after so many hours on its host, over all attempts.",
    )
    limit_tokens = forms.IntegerField(
        label="Tokens",
        required=False,
        min_value=1,
        max_value=10**15,
        help_text="Prompts and completions together, as num_tokens counts them.",
    )
    limit_money = forms.FloatField(
        label="Money",
        required=False,
        min_value=0.01,
        max_value=10**9,
        help_text="In the currency of the host: its price per GPU-hour, times the GPUs.",
    )
    stop_metric = forms.CharField(
        label="Early stop: metric",
        required=False,
        max_length=200,
        help_text="Such as eval_reward. The run saves and ends when it no longer improves.",
        widget=forms.TextInput(attrs={"list": "known-metrics", "spellcheck": "false"}),
    )
    stop_steps = forms.IntegerField(
        label="Early stop: steps", required=False, min_value=1, max_value=10**9, help_text="Without a new best value."
    )
    stop_gain = forms.FloatField(
        label="Early stop: least gain", required=False, min_value=0, help_text="A smaller gain is no improvement."
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
        max_length=200,
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
        label="Bound: steps in a row", required=False, min_value=1, max_value=10**9, help_text="Empty: at once."
    )

    def check_limits(self, values: dict[str, Any]) -> None:
        """Add an error for each half of a rule that is missing."""
        for given, needed, words in TOGETHER:
            if values.get(given) not in (None, "") and values.get(needed) in (None, "") and needed not in self.errors:
                self.add_error(needed, words)

    @property
    def limits(self) -> LimitsSpec:
        """Of the valid values."""
        values: dict[str, Any] = getattr(self, "cleaned_data", {})
        return LimitsSpec(
            hours=values.get("limit_hours"),
            tokens=values.get("limit_tokens"),
            money=values.get("limit_money"),
            no_better=_no_better(values),
            beyond=_beyond(values),
        )


def of_spec(limits: LimitsSpec) -> dict[str, Any]:
    """The fields' values."""
    values: dict[str, Any] = {
        "limit_hours": limits.hours,
        "limit_tokens": limits.tokens,
        "limit_money": limits.money,
    }
    if (rule := limits.no_better) is not None:
        values |= {"stop_metric": rule.metric, "stop_steps": rule.steps, "stop_higher": str(rule.higher).lower()}
        values["stop_gain"] = rule.least_gain or None
    if (bound := limits.beyond) is not None:
        values |= {"bound_metric": bound.metric, "bound_above": str(bound.above).lower(), "bound_value": bound.bound}
        values["bound_steps"] = bound.steps
    return values


def _no_better(values: dict[str, Any]) -> NoBetterSpec | None:
    metric, steps = values.get("stop_metric"), values.get("stop_steps")
    if not metric or steps is None:
        return None
    return NoBetterSpec(metric, steps, values.get("stop_higher") != "false", float(values.get("stop_gain") or 0.0))


def _beyond(values: dict[str, Any]) -> BeyondSpec | None:
    metric, bound = values.get("bound_metric"), values.get("bound_value")
    if not metric or bound is None:
        return None
    return BeyondSpec(metric, float(bound), values.get("bound_steps") or 1, values.get("bound_above") != "false")
