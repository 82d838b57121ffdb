"""The form of a machine source: the fields of every kind, and the options of its own."""

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
"""The lowest and the highest value of each field."""
SECTIONS = {
    "source": ("name", "control_url"),
    "machine": ("gpus", "gpu_kind", "gpu_memory_gib", "cpus", "memory_gib", "minutes"),
    "limits": ("most", "idle_minutes", "patience_minutes", "enabled"),
}
"""The fields of every kind, by section of the page."""


class MachineSourceForm(forms.ModelForm):  # type: ignore[type-arg]  # subscriptable for the type checker only
    control_url = forms.CharField(
        label="This control plane’s address",
        max_length=300,
        help_text="As the machines reach it.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )

    class Meta:
        model = MachineSource
        fields = tuple(chain.from_iterable(SECTIONS.values()))
        labels = {
            "gpus": "GPUs",
            "gpu_kind": "Kind of GPU",
            "gpu_memory_gib": "Memory of a GPU, GiB",
            "cpus": "CPU cores",
            "memory_gib": "Main memory, GiB",
            "minutes": "Time limit, minutes",
            "most": "Machines at most",
            "idle_minutes": "Idle limit, minutes",
            "patience_minutes": "Wait for a busy host, minutes",
            "enabled": "Request machines from it",
        }
        error_messages = {"name": {"required": "Enter a name."}}
        help_texts = {
            "name": "Its hosts’ names begin with it.",
            "gpus": "GPUs of each machine. 0: runs train on the CPU.",
            "gpu_kind": "The engine’s name for it, such as h100. Empty: any.",
            "gpu_memory_gib": "Shown to people only. 0: not stated.",
            "cpus": "Cores of each machine.",
            "memory_gib": "0: the engine’s default.",
            "minutes": "Runs save before the time is up and continue on the next machine.",
            "most": "At the same time.",
            "idle_minutes": "A machine without a run for this long is released.",
            "patience_minutes": "How long a run waits for a busy host before it requests a machine.",
            "enabled": "If turned off, no machines are requested. Existing ones stay until they are idle.",
        }

    def __init__(self, kind: EngineKind, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kind = kind
        if kind.names_gpus:
            needed = "Required for GPUs unless an instance type is given."
            self.fields["gpu_kind"].help_text = f"{kind.label}’s name for it, such as H100. {needed}"
        for name, (lowest, highest) in BOUNDS.items():
            old = self.fields[name]
            self.fields[name] = forms.IntegerField(
                min_value=lowest, max_value=highest, label=old.label, help_text=old.help_text, initial=old.initial
            )
        for option in kind.options:
            self.fields[OPTION + option.name] = _field(option, self.instance.options.get(option.name, option.initial))

    @property
    def sections(self) -> dict[str, list[forms.BoundField]]:
        """The fields by section: those of SECTIONS, the kind's options, and its rare options."""
        names: dict[str, Iterable[str]] = {
            **SECTIONS,
            "options": (OPTION + option.name for option in self.kind.options if not option.rare),
            "rare": (OPTION + option.name for option in self.kind.options if option.rare),
        }
        return {section: [self[name] for name in names[section]] for section in names}

    @property
    def shows_rare(self) -> bool:
        """True if a rare option is set or has an error."""
        return any(field.value() or field.errors for field in self.sections["rare"])

    def clean_control_url(self) -> str:
        url: str = self.cleaned_data["control_url"].rstrip("/")
        try:
            parts = urlsplit(url)
            fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            fine = False
        if not fine or parts.username or parts.query or parts.fragment or any(c.isspace() for c in url):
            raise forms.ValidationError("Use an address such as https://control.example:8443.")
        return url

    def clean_gpu_kind(self) -> str:
        kind: str = self.cleaned_data["gpu_kind"]
        if kind and not kind.replace("-", "").replace("_", "").replace(".", "").isalnum():
            raise forms.ValidationError("Use letters, digits, dots, dashes and underscores.")
        return kind

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        entered = {option.name: cleaned.get(OPTION + option.name, "") for option in self.kind.options}
        options = {name: text for name, text in entered.items() if text}
        for name, problem in self.kind.problems(options).items():
            if OPTION + name not in self.errors:
                self.add_error(OPTION + name, problem)
        settled = self.kind.settles(options)
        cleaned |= settled
        for name in settled.keys() & self.errors.keys():
            del self.errors[name]
        if self.kind.names_gpus and cleaned.get("gpus") and not cleaned.get("gpu_kind"):
            self.add_error("gpu_kind", f"{self.kind.label} needs the kind of GPU, such as H100.")
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
        "error_messages": {"required": f"{option.label} is needed."},
    }
    if option.choices:
        return forms.ChoiceField(choices=list(option.choices.items()), **arguments)
    field = forms.CharField(max_length=option.max_length, strip=True, **arguments)
    field.widget.attrs |= {"autocomplete": "off", "spellcheck": "false"}
    if option.suggestions:
        field.widget.attrs["list"] = f"suggested-{option.name}"
    return field
