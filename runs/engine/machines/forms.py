"""The form of a source of machines: what all kinds have, and the options of its kind."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django import forms

from controlplane.platform.accounts.models import User
from runs.engine.machines.models import KINDS, MachineSource
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
"""The lowest and the highest that is accepted."""


class SourceForm(forms.ModelForm):  # type: ignore[type-arg]  # subscriptable for the type checker only
    control_url = forms.CharField(
        label="This control plane’s address",
        max_length=300,
        help_text="As the machines reach it.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )

    class Meta:
        model = MachineSource
        fields = (
            *("name", "control_url", "gpus", "gpu_kind", "gpu_memory_gib", "cpus", "memory_gib", "minutes"),
            *("most", "idle_minutes", "patience_minutes", "enabled"),
        )
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
            "enabled": "Ask it for machines",
        }
        error_messages = {"name": {"required": "Enter a name."}}
        help_texts = {
            "name": "Its hosts’ names begin with it.",
            "gpus": "Of each machine. 0: runs train on the CPU.",
            "gpu_kind": "As the engine calls it, such as h100. Empty: any.",
            "gpu_memory_gib": "For people who read it here. 0: not said.",
            "cpus": "Of each machine.",
            "memory_gib": "0: as the engine gives it.",
            "minutes": "Runs save before the time is up, and go on on the next machine.",
            "most": "At the same time.",
            "idle_minutes": "A machine without a run for this long is given back.",
            "patience_minutes": "Before a machine is asked for, if a host only has to become free.",
            "enabled": "Switched off, it is asked for none. Its machines stay until they are idle.",
        }

    def __init__(self, kind: EngineKind, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kind = kind
        if kind.names_gpus:
            needed = "Needed for GPUs that no instance type names."
            self.fields["gpu_kind"].help_text = f"As {kind.label} calls it, such as H100. {needed}"
        for name, (lowest, highest) in BOUNDS.items():
            old = self.fields[name]
            self.fields[name] = forms.IntegerField(
                min_value=lowest, max_value=highest, label=old.label, help_text=old.help_text, initial=old.initial
            )
        for option in kind.options:
            self.fields[OPTION + option.name] = _field(option, self.instance.options.get(option.name, option.initial))

    @property
    def about_it(self) -> list[forms.BoundField]:
        return [self[name] for name in ("name", "control_url")]

    @property
    def of_machines(self) -> list[forms.BoundField]:
        return [self[name] for name in ("gpus", "gpu_kind", "gpu_memory_gib", "cpus", "memory_gib", "minutes")]

    @property
    def limits(self) -> list[forms.BoundField]:
        return [self[name] for name in ("most", "idle_minutes", "patience_minutes", "enabled")]

    @property
    def of_kind(self) -> list[forms.BoundField]:
        return [self[OPTION + option.name] for option in self.kind.options if not option.rare]

    @property
    def rare_of_kind(self) -> list[forms.BoundField]:
        return [self[OPTION + option.name] for option in self.kind.options if option.rare]

    @property
    def shows_rare(self) -> bool:
        """Whether one of them is set, or wrong."""
        return any(field.value() or field.errors for field in self.rare_of_kind)

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
        given = {option.name: cleaned.get(OPTION + option.name, "") for option in self.kind.options}
        options = {name: text for name, text in given.items() if text}
        for name, problem in self.kind.problems(options).items():
            if OPTION + name not in self.errors:
                self.add_error(OPTION + name, problem)
        settled = self.kind.settles(options)
        cleaned |= settled
        for name in settled.keys() & self.errors.keys():
            del self.errors[name]
        if self.kind.names_gpus and cleaned.get("gpus") and not cleaned.get("gpu_kind"):
            self.add_error("gpu_kind", f"{self.kind.label} can't be asked for GPUs without their kind, such as H100.")
        cleaned["options"] = options
        return cleaned

    def save_by(self, user: User) -> MachineSource:
        source: MachineSource = self.save(commit=False)
        source.kind, source.options = self.kind.name, self.cleaned_data["options"]
        source.created_by = source.created_by or user
        source.save()
        return source


def kind_of(source: MachineSource) -> EngineKind | None:
    """None: of a version that has others."""
    return KINDS.get(source.kind)


def _field(option: Option, initial: str) -> forms.Field:
    told: dict[str, Any] = {
        "label": option.label,
        "help_text": option.help,
        "required": option.required,
        "initial": initial,
        "error_messages": {"required": f"{option.label} is needed."},
    }
    if option.choices:
        return forms.ChoiceField(choices=list(option.choices.items()), **told)
    field = forms.CharField(max_length=option.max_length, strip=True, **told)
    field.widget.attrs |= {"autocomplete": "off", "spellcheck": "false"}
    if option.suggestions:
        field.widget.attrs["list"] = f"suggested-{option.name}"
    return field
