"""The New run form: a model, catalogue rows and GRPOConfig arguments.

The form validates single values; preflight judges whether the launch makes sense.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, cast

from django import forms
from django.core.validators import RegexValidator

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned.queries import offered_versions
from runs.engine import checkpoints
from runs.engine.models import Priority
from runs.engine.scheduling import checkpoint_hosts
from runs.engine.spec import LaunchRequest
from runs.launch.new_run import starting
from runs.launch.new_run.fields import advanced_fields
from runs.launch.new_run.fields.choice_fields import (
    CloneField,
    DatasetChoice,
    RewardChoice,
    bounds,
    model_name,
    offered_datasets,
    offered_profiles,
)
from runs.launch.new_run.fields.episode_fields import EPISODE_LIMIT_FIELDS, EpisodeFields
from runs.launch.new_run.fields.limit_fields import LIMIT_FIELDS, LimitFields
from runs.launch.new_run.fields.prompt_fields import PROMPT_FIELDS, PromptFields
from runs.launch.new_run.fields.recovery_fields import RECOVERY_FIELDS, RecoveryFields
from runs.launch.new_run.fields.several_fields import SEVERAL_FIELDS, SeveralFields
from runs.launch.new_run.fields.sink_fields import SINK_FIELDS, SinkFields
from runs.launch.new_run.fields.training_fields import (
    ATTENTIONS,
    EVALUATION_ONLY,
    PRECISION_FLAGS,
    PRECISIONS,
    TRAINING,
    FieldSection,
)
from runs.launch.new_run.starting import StartChoices
from workers.contract.run.ahead import FIELD as AHEAD
from workers.contract.run.beside import FIELD as BESIDE
from workers.contract.run.settings import of_section, section_of
from workers.contract.run.spec import LoraSpec, ModelSpec
from workers.contract.wire import hub_files

CHOICES = ("model", "dataset_version", "reward_version", "profile")
LORA_FIELDS = ("lora_r", "lora_alpha", "lora_dropout", "lora_targets")
DIRECT = tuple(setting for setting in of_section("") if setting.name != "name")
"""Settings of one field each, which has the setting's name."""
LORA_DEFAULT = "q_proj, k_proj, v_proj, o_proj"


class LaunchForm(LimitFields, EpisodeFields, PromptFields, RecoveryFields, SinkFields, SeveralFields):
    tips = True
    """Help is behind a "?", so that the page shows the choices."""
    key = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)
    cloned_from = CloneField(required=False)
    name = forms.CharField(
        label="Name of the run",
        required=False,
        **bounds("name"),
        help_text="Leave empty to use the model and dataset names.",
    )
    model = forms.CharField(
        label="Model",
        error_messages={
            "required": "No model is chosen. Give a folder on the host, or a hub id such as Qwen/Qwen3-0.6B."
        },
        **bounds("model"),
        help_text="A folder on the host, or a hub id. The list shows models found on hosts.",
        widget=forms.TextInput(
            attrs={"list": "known-models", "spellcheck": "false", "placeholder": "such as Qwen/Qwen3-0.6B"},
        ),
    )
    revision = forms.CharField(
        label="Revision",
        required=False,
        **bounds("revision"),
        help_text="A branch, tag or commit of a model of the hub. Empty: the newest.",
        validators=[RegexValidator(rf"\A{hub_files.REVISION}\Z", "Use letters, digits and . / _ - only.")],
        widget=forms.TextInput(attrs={"class": "code", "spellcheck": "false", "autocomplete": "off"}),
    )
    start_from = forms.CharField(
        label="Start from a checkpoint",
        required=False,
        **bounds("start_from"),
        help_text="The folder of another run’s checkpoint of this model, from its Checkpoints tab. Training begins at "
        "step 0 with its weights and a new optimizer; KL is still measured against the model.",
        widget=forms.TextInput(attrs={"class": "code", "spellcheck": "false"}),
    )
    dataset_version = DatasetChoice(
        DatasetVersion.objects.none(),
        label="Dataset",
        error_messages={"required": "No dataset is chosen. Choose one, or upload one under Datasets."},
        empty_label="choose a dataset",
        help_text="Versions that passed their check.",
    )
    eval_rows = forms.IntegerField(
        label="Evaluation rows",
        required=False,
        **bounds("eval_rows"),
        initial=0,
        help_text="How many of the dataset's validation rows, which are never trained on. 0: no evaluation.",
    )
    reward_version = RewardChoice(
        RewardVersion.objects.none(),
        label="Reward config",
        error_messages={"required": "No reward config is chosen. Choose one, or make one under Rewards."},
        empty_label="choose rewards",
        help_text="How completions are scored.",
    )
    eval_reward_version = RewardChoice(
        RewardVersion.objects.none(),
        label="Evaluate with other rewards",
        required=False,
        empty_label="only the run’s own",
        help_text="A second reward config that scores the held-out rows and is never trained on. Its total is "
        "eval_other_reward, by which the best checkpoint can be kept and the run ended early.",
    )
    profile = forms.ModelChoiceField(
        HardwareProfile.objects.none(),
        label="Hardware profile",
        error_messages={"required": "No hardware profile is chosen. Choose one; CPU works everywhere."},
        empty_label="choose a profile",
        help_text="How many GPUs train, and where completions are generated. Fills in its LoRA and batch settings "
        "unless you changed them.",
    )
    vllm_share = forms.FloatField(
        label="vLLM’s share of a GPU",
        required=False,
        min_value=0.05,
        max_value=0.98,
        help_text="0 to 1; holds the model and its KV cache. Empty: the profile’s. It counts only where the run "
        "starts vLLM itself.",
    )
    host = forms.ModelChoiceField(
        Host.objects.none(), label="Host", required=False, empty_label="any that fits", help_text="Where it runs."
    )
    priority = forms.TypedChoiceField(
        label="Priority",
        choices=[(priority.value, priority.label) for priority in reversed(Priority) if priority != Priority.JOB],
        coerce=int,
        required=False,
        initial=Priority.NORMAL.value,
        help_text="Its place in the queue if it has to wait.",
    )
    precision = forms.ChoiceField(
        label="Precision", choices=PRECISIONS, initial="profile", help_text="Precision of training."
    )
    ahead = forms.BooleanField(
        label="Generate one step ahead",
        required=False,
        help_text="vLLM servers generate the next batch while this one is trained on: a step takes as long as the "
        "longer of the two. Batches then come from weights one update old, weighted for that by token_truncate.",
    )
    attn_implementation = forms.ChoiceField(
        label="Attention", choices=ATTENTIONS, required=False, help_text="Implementation of attention in the trainer."
    )
    rewards_beside = forms.BooleanField(
        label="Score groups while others are generated",
        required=False,
        help_text="Rewards that wait (judges, code in the sandbox) begin with a group when it is complete, not when "
        "the batch is. The scores are the same. For vLLM servers and episodes.",
    )
    use_lora = forms.BooleanField(
        label="Train a LoRA", required=False, help_text="A small adapter instead of all weights: far less memory."
    )
    lora_r = forms.IntegerField(
        label="LoRA rank r", **bounds("lora_r"), initial=16, help_text="Size of the adapter. 8 to 64 is usual."
    )
    lora_alpha = forms.IntegerField(
        label="LoRA α", **bounds("lora_alpha"), initial=32, help_text="The adapter is scaled by α/r. Often 2r."
    )
    lora_dropout = forms.FloatField(
        label="LoRA dropout",
        **bounds("lora_dropout"),
        initial=0.0,
        help_text="Dropout on the adapter's input.",
    )
    lora_targets = forms.CharField(
        label="LoRA targets",
        **bounds("lora_targets"),
        initial=LORA_DEFAULT,
        help_text="Modules that get an adapter, with commas between; all-linear takes every linear layer.",
        widget=forms.TextInput(attrs={"class": "code", "spellcheck": "false"}),
    )

    def __init__(self, *args: Any, schema: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.schema = dict(schema) if schema else None
        self.initial.setdefault("key", secrets.token_urlsafe(16))
        self._choose_from_rows()
        for training in TRAINING:
            self.fields[training.name] = training.form_field()
        self.advanced: dict[str, list[str]] = {}
        for group, name, field in advanced_fields.fields(self.schema):
            self.fields[name] = field
            self.advanced.setdefault(group, []).append(name)
        if self.is_bound:
            self._ask_only_for_what_counts()

    def _choose_from_rows(self) -> None:
        rows = {
            # Without the reports, which are large: only the chosen version's is read.
            "dataset_version": offered_datasets().select_related("dataset").defer("report"),
            "reward_version": offered_versions(RewardVersion, self["reward_version"].value()),
            "eval_reward_version": offered_versions(RewardVersion, self["eval_reward_version"].value()),
            "environment": offered_versions(EnvironmentVersion, self["environment"].value()),
            "profile": offered_profiles(),
            "host": Host.objects.all(),
        }
        for name, queryset in rows.items():
            field = cast("forms.ModelChoiceField[Any]", self.fields[name])
            field.queryset = queryset
            field.error_messages["invalid_choice"] = "This no longer exists. Choose another."

    def _ask_only_for_what_counts(self) -> None:
        """Drop the requirements of fields that another field switches off."""
        off: list[str] = []
        if not self.data.get("use_lora"):
            off += LORA_FIELDS
        if str(self.data.get("eval_rows") or "0").strip() == "0":
            off += EVALUATION_ONLY
        if self.data.get("max_steps"):
            off += ["num_train_epochs"]
        if self.data.get("save_strategy") == "epoch":
            off += ["save_steps"]
        for name in off:
            self.fields[name].required = False
        self.unused = tuple(off)

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        self.check_limits(values)
        self.check_sinks(values)
        self.check_several(values)
        # Unused fields are hidden and may hold anything.
        for name in self.unused:
            self.errors.pop(name, None)
        if values.get("revision") and str(values.get("model") or "").startswith(("/", ".", "~")):
            self.add_error("revision", "A folder has no revisions. Leave this empty, or give a model of the hub.")
        if values.get("start_from"):
            self._start_from(values["start_from"])
        return values

    def _start_from(self, folder: str) -> None:
        checkpoint = checkpoints.by_folder(folder)
        profile = self.row("profile")
        choices = StartChoices(str(self.row("model") or ""), self.lora(), profile and profile.spec, self.row("host"))
        for name, problem in starting.problems(checkpoint, choices):
            self.add_error(name, problem)
        if checkpoint is not None:
            if "start_from" in self.cleaned_data:
                self.cleaned_data["start_from"] = checkpoint.folder
            self.cleaned_data["host"] = self.row("host") or checkpoint_hosts.host_for(checkpoint)

    def clean_model(self) -> str:
        return model_name(self.cleaned_data["model"])

    def clean_name(self) -> str:
        return " ".join(str(self.cleaned_data["name"]).split())

    @property
    def to_choose(self) -> list[str]:
        """Labels of the choices still open: no errors, but nothing to launch yet."""
        data = self.errors.as_data()
        return [
            str(self.fields[name].label)
            for name in CHOICES
            if any(error.code == "required" for error in data.get(name, ()))
        ]

    # --- the parts of a launch; each reads only valid values ---

    def row(self, name: str) -> Any:
        """The chosen catalogue row, or None. Any: each field has its own model."""
        return getattr(self, "cleaned_data", {}).get(name)

    @property
    def held_out(self) -> int:
        return int(self.row("eval_rows") or 0)

    @property
    def queue_priority(self) -> int:
        return int(self.row("priority") or Priority.NORMAL)

    def run_name(self) -> str:
        if self.row("name"):
            return str(self.row("name"))
        model = str(self.row("model") or "").rstrip("/").rpartition("/")[2]
        version = self.row("dataset_version")
        return f"{model}-{version.dataset.name}"[:120] if version else model[:120]

    def request(self) -> LaunchRequest:
        """The valid choices so far."""
        return LaunchRequest(
            name=self.run_name(),
            model=ModelSpec(str(self.row("model") or ""), self.row("revision") or None),
            host=self.row("host"),
            dataset_version=self.row("dataset_version"),
            reward_version=self.row("reward_version"),
            profile=self.row("profile"),
            grpo=self.grpo(),
            lora=self.lora(),
            vllm_share=self.row("vllm_share"),
            eval_rows=self.held_out,
            eval_reward_version=self.row("eval_reward_version"),
            recovery=self.recovery,
            limits=self.limits,
            hang=self.hang,
            prompts=self.prompts,
            **{setting.name: self.row(setting.name) or setting.default for setting in DIRECT},
            sinks=self.sinks,
            priority=self.queue_priority,
            environment_version=self.row("environment"),
            episodes=self.episodes(),
            cloned_from=self.row("cloned_from"),
        )

    def lora(self) -> LoraSpec | None:
        if not self.row("use_lora"):
            return None
        values = getattr(self, "cleaned_data", {})
        targets = tuple(str(values.get("lora_targets") or "").replace(",", " ").split())
        lora: LoraSpec = section_of("lora", {**values, "lora_targets": targets})
        return lora

    def grpo(self) -> dict[str, Any]:
        """Keyword arguments of GRPOConfig, by TRL's names."""
        values: dict[str, Any] = {}
        for training in TRAINING:
            value = self.row(training.name)
            if value is None or value == "":
                continue
            if training.name in EVALUATION_ONLY and not self.held_out:
                continue
            if training.name == "num_train_epochs" and self.row("max_steps"):
                continue
            if training.name == ("save_steps" if self.row("save_strategy") == "epoch" else "save_strategy"):
                continue  # steps are TRL's default
            values[training.name] = value
        values |= PRECISION_FLAGS.get(self.row("precision") or "profile", {})
        if self.held_out:
            values["eval_strategy"] = "steps"
        return values | advanced_fields.changed(self.schema, getattr(self, "cleaned_data", {}))

    # --- for the template ---

    def group(self, group: FieldSection, *extra: str) -> list[forms.BoundField]:
        return [self[name] for name in (*(f.name for f in TRAINING if f.group == group), *extra)]

    @property
    def main(self) -> list[forms.BoundField]:
        return self.group(FieldSection.MAIN)

    @property
    def episode_limits_fold(self) -> dict[str, Any]:
        return self._fold("Limits of an episode", [self[name] for name in EPISODE_LIMIT_FIELDS]) | {"quiet": True}

    @property
    def folds(self) -> list[dict[str, Any]]:
        """The folds of the Training card: title, fields, and whether to open them because of errors or a fix."""
        extra: dict[FieldSection, tuple[str, ...]] = {
            FieldSection.SAMPLING: (BESIDE, AHEAD),
            FieldSection.PROMPTS: PROMPT_FIELDS,
            FieldSection.PRECISION: ("precision", "attn_implementation"),
            FieldSection.EVALUATION: ("eval_reward_version",),
            FieldSection.LORA: ("use_lora", *LORA_FIELDS),
            FieldSection.CHECKPOINTS: RECOVERY_FIELDS,
            FieldSection.LIMITS: LIMIT_FIELDS,
            FieldSection.SINKS: SINK_FIELDS,
            FieldSection.SEVERAL: SEVERAL_FIELDS,
        }
        groups = [group for group in FieldSection if group != FieldSection.MAIN]
        return [self._fold(str(group), self.group(group, *extra.get(group, ()))) for group in groups]

    @property
    def advanced_folds(self) -> list[dict[str, Any]]:
        folds = [self._fold(group, [self[name] for name in names]) for group, names in self.advanced.items()]
        return [{**fold, "quiet": True} for fold in folds]

    @property
    def opens_advanced(self) -> bool:
        return any(fold["open"] for fold in self.advanced_folds)

    def _fold(self, title: str, fields: list[forms.BoundField]) -> dict[str, Any]:
        wrong = self.is_bound and any(field.errors for field in fields)
        changed = any(hasattr(field.field, "changed_from") for field in fields)  # by a fix, see fixing.mark
        return {"title": title, "fields": fields, "open": wrong or changed}
