"""Forms of the chat: a message, the device, and serving with a key."""

from typing import Any

from django import forms

from controlplane.catalogue.hardware.models import Host
from runs.engine.served import starting
from workers.contract.reports.chat import MAX_CHAT_LENGTH, MAX_TOKENS, Sampling

MAX_IDLE_MINUTES = 24 * 60


class AskForm(forms.Form):
    text = forms.CharField(
        label="Message",
        strip=False,
        error_messages={"required": "Enter a message."},
        widget=forms.Textarea(attrs={"rows": 3, "autocomplete": "off"}),
    )
    system = forms.CharField(
        label="System prompt", required=False, widget=forms.Textarea(attrs={"rows": 2, "autocomplete": "off"})
    )
    temperature = forms.FloatField(
        min_value=0, max_value=2, initial=0.7, help_text="0 always chooses the most likely token."
    )
    max_tokens = forms.IntegerField(min_value=1, max_value=MAX_TOKENS, initial=512, label="Maximum tokens")
    seed = forms.IntegerField(
        min_value=0, max_value=2**31 - 1, initial=0, help_text="The same seed gives the same answers."
    )
    new = forms.BooleanField(required=False, label="New chat", help_text="Without the messages above.")
    row = forms.IntegerField(required=False, min_value=0, max_value=2**31 - 1, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("temperature", "max_tokens", "seed"):
            self.fields[name].widget = forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"})

    def clean_text(self) -> str:
        return _message(self.cleaned_data["text"])

    def clean_system(self) -> str:
        return _message(self.cleaned_data["system"])

    def sampling(self) -> Sampling:
        data = self.cleaned_data
        return Sampling(temperature=data["temperature"], max_tokens=data["max_tokens"], seed=data["seed"])


class DeviceForm(forms.Form):
    """Form for choosing the GPU or CPU on which the model runs."""

    def __init__(self, host: Host | None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        devices = starting.engines_on(host)
        self.fields["place"] = forms.ChoiceField(
            label="Runs on",
            choices=[(device, starting.PLACES[device]) for device in devices],
            initial=devices[0],
            required=False,
            help_text="" if len(devices) == 1 else "A GPU is leased while the model is being served.",
        )

    @property
    def device(self) -> str:
        return self.cleaned_data["place"] or starting.CPU


class ServeForm(DeviceForm):
    idle_minutes = forms.IntegerField(
        min_value=1,
        max_value=MAX_IDLE_MINUTES,
        initial=60,
        label="Idle minutes until it stops",
        help_text="Minutes without a request or a message.",
        widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off"}),
    )

    def __init__(self, host: Host | None, *args: Any, **kwargs: Any) -> None:
        super().__init__(host, *args, **kwargs)
        addresses = starting.addresses_on(host)
        self.fields["address"] = forms.ChoiceField(
            label="Listens on",
            choices=[(address, address) for address in addresses],
            initial=addresses[0],
            help_text="127.0.0.1 is reachable only from the host itself. Allow another address on the Hardware page.",
        )
        self.order_fields(["place", "address", "idle_minutes"])


def _message(entered: str) -> str:
    message = entered.replace("\r\n", "\n").replace("\0", "\ufffd")
    if len(message) > MAX_CHAT_LENGTH:
        raise forms.ValidationError(
            f"This message has {len(message):,} characters; the limit is {MAX_CHAT_LENGTH:,}. Shorten it."
        )
    return message
