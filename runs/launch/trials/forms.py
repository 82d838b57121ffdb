"""The form that selects hardware profiles to try, with the host's capacity for each of them."""

import secrets
from dataclasses import dataclass
from typing import Any

from django import forms

from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.hardware.profile_pages.profile_words import STRATEGIES, group_profiles
from controlplane.catalogue.hardware.profiles import Profile, profile_of
from runs.engine.hosts.view import HostView
from runs.engine.sentences import counted
from runs.launch.new_run.drafting import candidate_hosts
from runs.launch.new_run.fields.choice_fields import model_name, offered_profiles, row_by_id, row_fields
from runs.launch.trials.trials import TrialSetup, too_small
from workers.contract.run.hardware import Quantization, Rollout, ServerSpec, WeightSync
from workers.contract.wire.documents import ContractError

MAX_PROFILES = 40


@dataclass(frozen=True)
class Candidate:
    row: HardwareProfile
    summary: str
    room: str
    fits: bool
    chosen: bool


class TrialForm(forms.Form):
    key = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)
    host = forms.ModelChoiceField(
        Host.objects.all(),
        label="Host",
        empty_label="choose a host",
        help_text="All candidates are tried on this host, as many at a time as fit.",
        error_messages={"required": "Choose a host."},
    )
    model = forms.CharField(
        label="Model",
        max_length=500,
        help_text="A folder on the host, or a hub id.",
        error_messages={"required": "Enter a model: a folder on the host, or a hub id."},
        widget=forms.TextInput(attrs={"list": "known-models", "autocomplete": "off", "spellcheck": "false"}),
    )
    profiles = forms.ModelMultipleChoiceField(
        offered_profiles(),
        label="Profiles to try",
        error_messages={"required": "Choose at least one profile."},
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial.setdefault("key", secrets.token_urlsafe(16))
        rows = row_fields(self.data if self.is_bound else self.initial)
        self.fields |= {name: rows[name] for name in ("dataset_version", "reward_version", "environment")}
        self.fields["dataset_version"].help_text = "Its prompts fill the batches; long prompts take more memory."
        self.fields["environment"].help_text = "Its turns and tool calls take time and make completions longer."

    def clean_model(self) -> str:
        return model_name(self.cleaned_data["model"])

    def clean_host(self) -> Host:
        host: Host = self.cleaned_data["host"]
        [view] = candidate_hosts(host)
        if not view.fresh:
            raise forms.ValidationError(f"{host.name} is unreachable, so profiles can't be tried there now.")
        if host.draining:
            raise forms.ValidationError(f"{host.name} accepts no new runs. Let it accept runs again under Hardware.")
        return host

    def clean_profiles(self) -> Any:
        profiles = self.cleaned_data["profiles"]
        if len(profiles) > MAX_PROFILES:
            raise forms.ValidationError(f"Choose at most {MAX_PROFILES} profiles.")
        return profiles

    def setup(self) -> TrialSetup:
        values = self.cleaned_data
        rows = (values[name] for name in ("dataset_version", "reward_version", "environment"))
        return TrialSetup(values["host"], values["model"], *rows)

    def chosen_host(self) -> Host | None:
        """Find the selected host, even if the form is invalid."""
        return row_by_id(Host, self["host"].value())

    def candidates(self) -> list[Candidate]:
        """List all profiles from small to large, those that fit the selected host first."""
        host = self.chosen_host()
        view = candidate_hosts(host)[0] if host else None
        value = self["profiles"].value() or []
        chosen_ids = {str(pk) for pk in (value if isinstance(value, list | tuple) else [value])}
        rows = (row for _, rows in group_profiles(offered_profiles()) for row in rows)
        all_candidates = [_candidate(row, view, str(row.pk) in chosen_ids) for row in rows]
        return sorted(all_candidates, key=lambda candidate: not candidate.fits)


def _candidate(row: HardwareProfile, view: HostView | None, is_chosen: bool) -> Candidate:
    try:
        profile = profile_of(row)
    except ContractError as error:
        return Candidate(row, f"can't be read: {error}", "", False, False)
    if view is None:
        return Candidate(row, summary(profile), "", True, is_chosen)
    shortage = too_small(profile, view)
    gpus = profile.spec.trainer_gpus + profile.spec.server_gpus
    room = f"{gpus} of {view.name}'s {len(view.gpus)} GPUs" if gpus else f"a CPU slot of {view.name}"
    return Candidate(row, summary(profile), shortage or room, not shortage, is_chosen)


def summary(profile: Profile) -> str:
    """Describe a profile in one line: the trainer's devices, the rollout backend and the trained parameters."""
    spec = profile.spec
    devices = counted(spec.trainer_gpus, "trainer GPU") if spec.trainer_gpus else "on the CPU"
    parts = [f"{devices}, {STRATEGIES[spec.strategy]}" if spec.strategy in STRATEGIES else devices]
    if spec.rollout == Rollout.COLOCATE:
        parts.append("vLLM in the trainer")
    elif spec.vllm_server:
        parts.append(_server_summary(spec.vllm_server))
    else:
        parts.append("no vLLM")
    trained = f"LoRA r {profile.lora.r}" if profile.lora else "all weights"
    bits = {Quantization.NF4: ", 4-bit", Quantization.INT8: ", 8-bit"}.get(spec.quantization, "")
    parts.append(trained + bits)
    return " · ".join(parts)


def _server_summary(server: ServerSpec) -> str:
    transport = "LoRA by HTTP" if server.weight_sync == WeightSync.LORA else "weights by NCCL"
    if server.attached:
        return f"{counted(server.servers, 'attached vLLM server')}, {transport}"
    location = "on the trainer's GPU" if server.shared else f"on {counted(server.own_gpus, 'GPU')}"
    return f"{'vLLM server' if server.count == 1 else f'{server.count} vLLM servers'} {location}, {transport}"
