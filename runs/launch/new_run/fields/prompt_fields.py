"""The fields of dynamic sampling and of prompts drawn by difficulty."""

from __future__ import annotations

from django import forms

from runs.launch.new_run.fields.choice_fields import bounds
from workers.contract.run.prompts import PromptsSpec
from workers.contract.run.settings import names_below, section_of

PROMPT_FIELDS = names_below("prompts")


class PromptFields(forms.Form):
    extra_rounds = forms.IntegerField(
        label="Dynamic sampling rounds",
        required=False,
        **bounds("extra_rounds"),
        initial=0,
        help_text="Groups whose completions all score the same are replaced by groups of fresh prompts, in at most "
        "this many more rounds of generation per batch (DAPO). 0: off.",
    )
    spread_in = forms.CharField(
        label="Spread of",
        required=False,
        **bounds("spread_in"),
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
        **bounds("least_weight"),
        initial=PromptsSpec().least_weight,
        help_text="How often a prompt that teaches nothing still comes, beside one that teaches most: 0.05 is 1 in 20, "
        "and less where there are so many of these that together they would come often.",
    )

    @property
    def prompts(self) -> PromptsSpec:
        """Of the valid values."""
        prompts: PromptsSpec = section_of("prompts", getattr(self, "cleaned_data", {}))
        return prompts
