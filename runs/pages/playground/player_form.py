"""Which model plays an episode, and how its turns are sampled."""

from __future__ import annotations

from django import forms

from controlplane.catalogue.versioned.parameter_forms import endpoints
from runs.pages.playground.model_turn import ModelPlayer


class PlayerForm(forms.Form):
    endpoint = forms.ChoiceField(
        choices=endpoints,
        help_text="An OpenAI-compatible server among the secrets.",
        error_messages={"required": "Choose the endpoint of the model."},
    )
    model = forms.CharField(
        max_length=200,
        help_text="By its name on that server.",
        error_messages={"required": "Enter the model's name on that server."},
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    temperature = forms.FloatField(
        min_value=0,
        max_value=2,
        required=False,
        help_text="Empty: the server’s own.",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    max_tokens = forms.IntegerField(
        label="Tokens of a turn", min_value=1, max_value=32_768, initial=1024, help_text="What is longer is cut."
    )

    @property
    def problem(self) -> str:
        """All that is wrong, in one line."""
        return " ".join(f"{self[name].label}: {' '.join(map(str, errors))}" for name, errors in self.errors.items())

    def player(self) -> ModelPlayer:
        """Of a valid form."""
        return ModelPlayer(**self.cleaned_data)
