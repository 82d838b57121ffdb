"""The fields of dynamic sampling and of prompts drawn by difficulty."""

from __future__ import annotations

from typing import Any

from django import forms

from workers.contract.reports.lines import LONGEST_NAME
from workers.contract.run.prompts import MOST_ROUNDS, PromptsSpec
from workers.contract.wire.documents import to_dict

PROMPT_FIELDS = ("extra_rounds", "spread_in", "by_difficulty", "least_weight")


class PromptFields(forms.Form):
    extra_rounds = forms.IntegerField(
        label="Dynamic sampling rounds",
        required=False,
        min_value=0,
        max_value=MOST_ROUNDS,
        initial=0,
        help_text="Groups whose completions all score the same are replaced by groups of fresh prompts, in at most "
        "this many more rounds of generation per batch (DAPO). 0: off.",
    )
    spread_in = forms.CharField(
        label="Spread of",
        required=False,
        max_length=LONGEST_NAME,
        help_text="The reward component whose spread counts, such as the one that checks the answer. Empty: the total.",
        widget=forms.TextInput(attrs={"class": "code", "spellcheck": "false"}),
    )
    by_difficulty = forms.BooleanField(
        label="Draw prompts by difficulty",
        required=False,
        help_text="Prompts that are solved now and then come more often than those that never or always are, by this "
        "run's own history. Saves tokens where a run meets its prompts several times. Off: in epochs.",
    )
    least_weight = forms.FloatField(
        label="Least weight",
        required=False,
        min_value=0.001,
        max_value=1,
        initial=PromptsSpec().least_weight,
        help_text="How often a prompt that teaches nothing still comes, beside one that teaches most: 0.05 is 1 in 20, "
        "and less where there are so many of these that together they would come often.",
    )

    @property
    def prompts(self) -> PromptsSpec:
        """Of the valid values."""
        values: dict[str, Any] = getattr(self, "cleaned_data", {})
        return PromptsSpec(
            extra_rounds=values.get("extra_rounds") or 0,
            spread_in=values.get("spread_in") or "",
            by_difficulty=bool(values.get("by_difficulty")),
            least_weight=float(values.get("least_weight") or PromptsSpec().least_weight),
        )


def of_spec(prompts: PromptsSpec) -> dict[str, Any]:
    """The fields' values."""
    return to_dict(prompts)
