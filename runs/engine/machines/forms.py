"""The form of a machine source: the fields common to all kinds, and the options of its own kind."""

from collections.abc import Iterable
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from django import forms

from controlplane.platform.accounts.models import User
from runs.engine.machines.models import MachineSource
from runs.engine.machines.provider import EngineKind, Option

OPTION = "option_"
BOUNDS = {
    "most": (1, 1000),
    "idle_minutes": (1, 24 * 60),
    "patience_minutes": (0, 7 * 24 * 60),
    "gpus": (0, 64),
    "gpu_memory_gib": (0, 2000),
    "cpus": (1, 1024),
    "memory_gib": (0, 20_000),
    "minutes": (5, 60 * 24 * 60),
}
SECTIONS = {
    "source": ("name", "control_url"),
    "machine": ("gpus", "gpu_kind", "gpu_memory_gib", "cpus", "memory_gib", "minutes"),
    "limits": ("most", "idle_minutes", "patience_minutes", "enabled"),
}
"""Fields common to all kinds, by section of the page."""


class MachineSourceForm(forms.ModelForm):  # type: ignore[type-arg]  # subscriptable for the type checker only
    control_url = forms.CharField(
        label="This control plane’s address",
        max_length=300,
        help_text="The address at which the machines reach it.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )

    class Meta:
        model = MachineSource
        fields = tuple(chain.from_iterable(SECTIONS.values()))
        labels = {
            "gpus": "GPUs",
            "gpu_kind": "GPU type",
            "gpu_memory_gib": "Memory per GPU, GiB",
            "cpus": "CPU cores",
            "memory_gib": "Main memory, GiB",
            "minutes": "Time limit, minutes",
            "most": "Maximum number of machines",
            "idle_minutes": "Idle limit, minutes",
            "patience_minutes": "Wait for a busy host, minutes",
            "enabled": "Request machines from this source",
        }
        error_messages = {"name": {"required": "Enter a name."}}
        help_texts = {
            "name": "The names of its hosts begin with this.",
            "gpus": "GPUs per machine. With 0, runs train on the CPU.",
            "gpu_kind": "The engine’s name for the GPU, such as h100. Leave empty for any.",
            "gpu_memory_gib": "Only shown to people. Enter 0 if you don’t know it.",
            "cpus": "Cores per machine.",
            "memory_gib": "Enter 0 for the engine’s default.",
            "minutes": "Runs save before the time is up and continue on the next machine.",
            "most": "Number of machines that may exist at the same time.",
            "idle_minutes": "A machine is released after this long without a run.",
            "patience_minutes": "How long a run waits for a busy host before a machine is requested.",
            "enabled": "If turned off, no new machines are requested. Existing ones stay until they are idle.",
        }

    def __init__(self, kind: EngineKind, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kind = kind
        if kind.requires_gpu_kind:
            required_message = "Required for machines with GPUs unless you choose an instance type."
            self.fields["gpu_kind"].help_text = f"{kind.label}’s name for the GPU, such as H100. {required_message}"
        for name, (minimum, maximum) in BOUNDS.items():
            original = self.fields[name]
            self.fields[name] = forms.IntegerField(
                min_value=minimum,
                max_value=maximum,
                label=original.label,
                help_text=original.help_text,
                initial=original.initial,
            )
        for option in kind.options:
            self.fields[OPTION + option.name] = _field(option, self.instance.options.get(option.name, option.initial))

    @property
    def sections(self) -> dict[str, list[forms.BoundField]]:
        """The fields by section: those of SECTIONS, the kind's usual options (`options`) and its rare ones (`rare`)."""
        names: dict[str, Iterable[str]] = {
            **SECTIONS,
            "options": (OPTION + option.name for option in self.kind.options if not option.rare),
            "rare": (OPTION + option.name for option in self.kind.options if option.rare),
        }
        return {section: [self[name] for name in names[section]] for section in names}

    @property
    def shows_rare(self) -> bool:
        return any(field.value() or field.errors for field in self.sections["rare"])

    def clean_control_url(self) -> str:
        url: str = self.cleaned_data["control_url"].rstrip("/")
        try:
            parts = urlsplit(url)
            is_valid = (
                parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
            )
        except ValueError:
            is_valid = False
        if not is_valid or parts.username or parts.query or parts.fragment or any(c.isspace() for c in url):
            raise forms.ValidationError("Enter an address such as https://control.example:8443.")
        return url

    def clean_gpu_kind(self) -> str:
        kind: str = self.cleaned_data["gpu_kind"]
        if kind and not kind.replace("-", "").replace("_", "").replace(".", "").isalnum():
            raise forms.ValidationError("Use letters, digits, dots, dashes and underscores.")
        return kind

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        entered_options = {option.name: cleaned.get(OPTION + option.name, "") for option in self.kind.options}
        options = {name: text for name, text in entered_options.items() if text}
        for name, problem in self.kind.problems(options).items():
            if OPTION + name not in self.errors:
                self.add_error(OPTION + name, problem)
        determined_fields = self.kind.settles(options)
        cleaned |= determined_fields
        for name in determined_fields.keys() & self.errors.keys():
            del self.errors[name]
        if self.kind.requires_gpu_kind and cleaned.get("gpus") and not cleaned.get("gpu_kind"):
            self.add_error("gpu_kind", f"{self.kind.label} needs a GPU type, such as H100.")
        cleaned["options"] = options
        return cleaned

    def save_by(self, user: User) -> MachineSource:
        source: MachineSource = self.save(commit=False)
        source.kind, source.options = self.kind.name, self.cleaned_data["options"]
        source.created_by = source.created_by or user
        source.save()
        return source


def _field(option: Option, initial: str) -> forms.Field:
    arguments: dict[str, Any] = {
        "label": option.label,
        "help_text": option.help,
        "required": option.required,
        "initial": initial,
        "error_messages": {"required": f"{option.label} is required."},
    }
    if option.choices:
        return forms.ChoiceField(choices=list(option.choices.items()), **arguments)
    field = forms.CharField(max_length=option.max_length, strip=True, **arguments)
    field.widget.attrs |= {"autocomplete": "off", "spellcheck": "false"}
    if option.suggestions:
        field.widget.attrs["list"] = f"suggested-{option.name}"
    return field
