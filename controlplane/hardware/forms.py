"""The profile form: the fields of workers.contract.HardwareSpec, flat, with what each one does."""

from __future__ import annotations

import dataclasses
from typing import Any

from django import forms

from controlplane.hardware.models import HardwareProfile
from controlplane.hardware.profiles import HELP, problems
from workers.contract import ContractError, HardwareSpec, Rollout, ServerSpec, WeightSync, from_dict, to_dict

ROLLOUTS = [
    (Rollout.TRANSFORMERS, "In the trainer, without vLLM"),
    (Rollout.COLOCATE, "vLLM inside the trainer, on its GPU"),
    (Rollout.SERVER, "A vLLM server of its own"),
]
SYNCS = [(WeightSync.NCCL, "All weights by NCCL"), (WeightSync.LORA, "LoRA adapter by HTTP")]
DTYPES = [(d, d) for d in ("auto", "bfloat16", "float16", "float32")]
LABELS = {
    "rollout": "Completions are made",
    "trainer_gpus": "Trainer GPUs",
    "cpu_slots": "CPU slots",
    "colocate_memory_utilization": "vLLM's share of GPU memory",
    "colocate_sleep": "vLLM sleeps between generations",
    "server_gpus": "Server GPUs",
    "server_tensor_parallel": "Tensor parallel",
    "server_gpu_memory_utilization": "Server's share of GPU memory",
    "server_max_model_len": "Longest sequence",
    "server_dtype": "Number format",
    "server_enforce_eager": "Run eagerly",
    "server_prefix_caching": "Cache prefixes",
    "server_ready_timeout_s": "Start-up deadline, seconds",
    "server_request_timeout_s": "Answer deadline, seconds",
    "server_weight_sync": "How weights reach the server",
}
CHOICES: dict[str, list[tuple[Any, str]]] = {"rollout": ROLLOUTS, "server_dtype": DTYPES, "server_weight_sync": SYNCS}
GROUPS = {
    "training": ("trainer_gpus", "processes", "cpu_slots", "threads"),
    "colocate": ("colocate_memory_utilization", "colocate_sleep"),
    "server": (
        "server_gpus",
        "server_tensor_parallel",
        "server_gpu_memory_utilization",
        "server_max_model_len",
        "server_dtype",
        "server_enforce_eager",
        "server_prefix_caching",
        "server_ready_timeout_s",
        "server_request_timeout_s",
        "server_weight_sync",
    ),
}


def _spec_fields() -> dict[str, tuple[type, bool, Any]]:
    """Form field -> (type, may be empty, default), read from the contract's dataclasses."""
    found: dict[str, tuple[type, bool, Any]] = {}
    for prefix, cls in (("", HardwareSpec), ("server_", ServerSpec)):
        for f in dataclasses.fields(cls):
            if f.name in ("profile", "server"):
                continue
            words = str(f.type)
            base = next((t for t in (int, float, bool) if words.startswith(t.__name__)), str)
            if base is str and prefix + f.name not in CHOICES:
                continue
            found[prefix + f.name] = (base, "None" in words, f.default)
    return found


def _form_field(name: str, kind: type, optional: bool, default: Any) -> forms.Field:
    common: dict[str, Any] = {
        "label": LABELS.get(name, name.replace("_", " ").capitalize()),
        "help_text": HELP.get(name, ""),
        "initial": default,
        "required": not optional,
    }
    if name in CHOICES:
        return forms.ChoiceField(choices=CHOICES[name], **common)
    if kind is bool:
        return forms.BooleanField(**{**common, "required": False})
    if kind is int:
        return forms.IntegerField(**common, min_value=0, max_value=10**6)
    if kind is float:
        return forms.FloatField(**common, min_value=0, max_value=1, widget=forms.NumberInput(attrs={"step": "any"}))
    raise TypeError(f"HardwareSpec.{name}: no form field for {kind}")


class ProfileForm(forms.Form):
    name = forms.CharField(max_length=80, help_text="What people choose it by.")
    description = forms.CharField(
        required=False, max_length=500, widget=forms.Textarea(attrs={"rows": 2}), help_text="When to take it."
    )

    def __init__(self, *args: Any, profile: HardwareProfile | None = None, **kwargs: Any) -> None:
        self.profile = profile
        if profile is not None:
            kwargs.setdefault(
                "initial", {**_flat(profile.spec), "name": profile.name} | {"description": profile.description}
            )
        super().__init__(*args, **kwargs)
        for name, (kind, optional, default) in _spec_fields().items():
            self.fields[name] = _form_field(name, kind, optional, default)

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"]).strip()
        others = HardwareProfile.objects.filter(name__iexact=name)
        if self.profile is not None:
            others = others.exclude(pk=self.profile.pk)
        if others.exists():
            raise forms.ValidationError("Another profile has this name. Choose a different one.")
        return name

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        for rollout in (Rollout.COLOCATE, Rollout.SERVER):
            if values.get("rollout") != rollout:
                # What isn't used is out of sight, and may hold anything.
                for name in GROUPS[rollout]:
                    self.errors.pop(name, None)
        if self.errors:
            return values
        try:
            self.spec = _spec(values)
        except ContractError as error:
            raise forms.ValidationError(str(error)) from error
        for name, cause in problems(self.spec):
            self.add_error(name, cause)
        return values

    @property
    def groups(self) -> dict[str, list[forms.BoundField]]:
        return {group: [self[name] for name in names] for group, names in GROUPS.items()}


def _flat(spec: dict[str, Any]) -> dict[str, Any]:
    """A stored HardwareSpec as form values."""
    server = spec.get("server") or {}
    return {k: v for k, v in spec.items() if k not in ("server", "profile")} | {
        f"server_{k}": v for k, v in server.items()
    }


def _spec(values: dict[str, Any]) -> HardwareSpec:
    plain = {f.name: values[f.name] for f in dataclasses.fields(HardwareSpec) if f.name in values}
    server = None
    if values["rollout"] == Rollout.SERVER:
        names = [f.name for f in dataclasses.fields(ServerSpec) if f"server_{f.name}" in values]
        server = {name: values[f"server_{name}"] for name in names}
    return from_dict(HardwareSpec, {**plain, "profile": values["name"], "server": server})


def save(form: ProfileForm, profile: HardwareProfile) -> HardwareProfile:
    profile.name = form.cleaned_data["name"]
    profile.description = form.cleaned_data["description"]
    profile.spec = to_dict(form.spec)
    profile.save()
    return profile
