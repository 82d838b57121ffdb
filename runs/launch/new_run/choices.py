"""The choices of a launch: catalogue rows and settings, checked field by field and then together.

The page's form (forms.LaunchForm) and what a program sends (choices_of) are two sources of the same choices.
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from controlplane.catalogue.versioned.parameter_forms import StoredChoiceField, endpoints
from controlplane.platform.accounts import vault
from runs.engine import checkpoints
from runs.engine.models import Priority
from runs.engine.scheduling import checkpoint_hosts
from runs.engine.spec import LaunchRequest, data_of
from runs.launch.new_run import starting
from runs.launch.new_run.fields import advanced_fields, grid, mix_field
from runs.launch.new_run.fields.choice_fields import CloneField, model_name, row_fields
from runs.launch.new_run.fields.grid import Axes, Variation
from runs.launch.new_run.fields.table import ARGUMENTS, BY_FIELD, names_of
from runs.launch.new_run.spec_values import PRECISION_FLAGS, form_value
from workers.contract.run import mixing, sinks
from workers.contract.run.episodes import EpisodeSpec
from workers.contract.run.settings import chosen_settings, of_section, section_of
from workers.contract.run.sinks import SinkSpec
from workers.contract.run.spec import ModelSpec
from workers.contract.wire import hub_files

REQUIRED_CHOICES = ("model", "dataset_version", "reward_version", "profile")
EVALUATION_ONLY = ("eval_steps", "per_device_eval_batch_size", "eval_reward_version")
EPISODE_LIMITS = of_section("episodes.limits")
NEEDED_TOGETHER = (
    ("stop_metric", "stop_steps", "Enter the number of steps without improvement after which the run ends."),
    ("stop_steps", "stop_metric", "Enter the metric that has to improve."),
    ("bound_metric", "bound_value", "Enter the bound."),
    ("bound_value", "bound_metric", "Enter the metric that must not cross the bound."),
    ("bound_steps", "bound_metric", "Enter the metric that must not cross the bound."),
)
"""Fields that need each other: (filled field, field it needs, error shown at the field it needs)."""


def launch_fields(schema: Mapping[str, Any] | None, chosen_values: Mapping[str, Any]) -> dict[str, forms.Field]:
    """Build every field of a launch. `schema`: the fields of a host's trainer; `chosen_values`: the chosen rows."""
    priorities = [(priority.value, priority.label) for priority in reversed(Priority) if priority != Priority.JOB]
    fields: dict[str, forms.Field] = {
        "key": forms.CharField(required=False, max_length=64, widget=forms.HiddenInput),
        "cloned_from": CloneField(required=False),
        "priority": forms.TypedChoiceField(
            choices=priorities, coerce=int, initial=Priority.NORMAL.value, **BY_FIELD["priority"].form_arguments
        ),
        **row_fields(chosen_values),
    }
    for name, launch_field in BY_FIELD.items():
        if name.endswith("_secret"):
            fields[name] = StoredChoiceField(stored=endpoints, **launch_field.form_arguments)
        elif name == mix_field.FIELD:
            fields[name] = mix_field.mix_field()
        elif name not in fields:
            fields[name] = launch_field.form_field()
    return fields | {name: field for _, name, field in advanced_fields.fields(schema)}


class LaunchChoices(forms.Form):
    """The choices of a launch so far. Each method reads only valid values."""

    axes: Axes = ()
    """The fields in which the runs of a valid launch differ, with their values; empty for a single run."""

    def __init__(self, *args: Any, schema: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.schema = dict(schema) if schema else None
        self.initial.setdefault("key", secrets.token_urlsafe(16))
        self.fields = launch_fields(self.schema, self.data if self.is_bound else self.initial)
        if self.is_bound:
            self._unused = self.make_unused_optional(self.data)

    def clean(self) -> dict[str, Any]:
        super().clean()
        self.check_together(self._unused)
        return self.cleaned_data

    def sent_values(self) -> dict[str, Any]:
        return {name: self.data[name] for name in self.data}

    def chosen(self, name: str) -> Any:
        """Return a field's valid value, or None. The type depends on the field."""
        return getattr(self, "cleaned_data", {}).get(name)

    @property
    def to_choose(self) -> list[str]:
        """Labels of the required choices still missing. They aren't errors, but they prevent a launch."""
        data = self.errors.as_data()
        return [
            BY_FIELD[name].label
            for name in REQUIRED_CHOICES
            if any(error.code == "required" for error in data.get(name, ()))
        ]

    @property
    def variations(self) -> list[Variation]:
        """The variations of a valid launch of several runs, or [] for a single run."""
        return grid.variations(self.axes) if self.is_valid() and self.axes else []

    def run_name(self) -> str:
        if self.chosen("name"):
            return str(self.chosen("name"))
        model = str(self.chosen("model") or "").rstrip("/").rpartition("/")[2]
        version = self.chosen("dataset_version")
        return f"{model}-{version.dataset.name}"[:120] if version else model[:120]

    def request(self) -> LaunchRequest:
        values = getattr(self, "cleaned_data", {})
        return LaunchRequest(
            **{
                **chosen_settings(values),
                "grpo": self.arguments(),
                "lora": self._lora(),
                "episodes": self.episodes(),
                "sinks": tuple(self._sinks()),
            },
            name=self.run_name(),
            model=ModelSpec(str(self.chosen("model") or ""), self.chosen("revision") or None),
            host=self.chosen("host"),
            dataset_version=self.chosen("dataset_version"),
            reward_version=self.chosen("reward_version"),
            profile=self.chosen("profile"),
            vllm_share=self.chosen("vllm_share"),
            eval_rows=self._held_out,
            sources=self.chosen("sources") or (),
            eval_reward_version=self.chosen("eval_reward_version"),
            priority=int(self.chosen("priority") or Priority.NORMAL),
            environment_version=self.chosen("environment"),
            cloned_from=self.chosen("cloned_from"),
        )

    def arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for name in (argument.name for argument in ARGUMENTS):
            value = self.chosen(name)
            if value is None or value == "":
                continue
            if name in EVALUATION_ONLY and not self._held_out:
                continue
            if name == "num_train_epochs" and self.chosen("max_steps"):
                continue
            if name == ("save_steps" if self.chosen("save_strategy") == "epoch" else "save_strategy"):
                continue  # steps are TRL's default
            arguments[name] = value
        arguments |= PRECISION_FLAGS.get(self.chosen("precision") or "profile", {})
        if self._held_out:
            arguments["eval_strategy"] = "steps"
        return arguments | advanced_fields.changed_values(self.schema, getattr(self, "cleaned_data", {}))

    def episodes(self) -> EpisodeSpec | None:
        """Build the environment and limits of the run's episodes; return None if each completion is one turn."""
        version, kind = self.chosen("environment"), self.chosen("driven_by")
        if version is None and not kind:
            return None
        spec: EpisodeSpec = version.episode_spec() if version is not None else EpisodeSpec()
        coefficient = self.chosen("turn_advantage_coef")
        return replace(
            spec,
            limits=replace(spec.limits, **dict(self._episode_limits())),
            turn_advantage_coef=spec.turn_advantage_coef if coefficient is None else coefficient,
            chat_template=str(self.chosen("tool_template") or ""),
            gateway=section_of("episodes.gateway", self.cleaned_data) if kind else None,
        )

    @property
    def _held_out(self) -> int:
        return int(self.chosen("eval_rows") or 0)

    def _lora(self) -> Any:
        if not self.chosen("use_lora"):
            return None
        targets = tuple(str(self.chosen("lora_targets") or "").replace(",", " ").split())
        return section_of("lora", {**self.cleaned_data, "lora_targets": targets})

    def _episode_limits(self) -> Iterator[tuple[str, Any]]:
        """Yield the limits in which the run differs from its environment."""
        for setting in EPISODE_LIMITS:
            if (value := self.chosen(setting.name)) not in (None, ""):
                yield setting.path.rpartition(".")[2], value == "true" if setting.type is bool else value

    def _sinks(self) -> Iterator[SinkSpec]:
        project, name = self.chosen("send_project") or "", self.chosen("send_name") or ""
        for kind in sinks.TITLES:
            if self.chosen(f"send_{kind}"):
                yield SinkSpec(kind, project, name, self.chosen(f"send_{kind}_secret") or "")

    # --- checks of values that belong together ---

    def make_unused_optional(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Make the fields that another field switches off optional, and return their names."""
        unused_names: list[str] = []
        if values.get("use_lora") in (None, "", False, "false"):
            unused_names += names_of("LoRA")
        if str(values.get("eval_rows") or "0").strip() == "0":
            unused_names += EVALUATION_ONLY
        if values.get("max_steps"):
            unused_names.append("num_train_epochs")
        if values.get("save_strategy") == "epoch":
            unused_names.append("save_steps")
        for name in unused_names:
            self.fields[name].required = False
        return tuple(unused_names)

    def check_together(self, unused: tuple[str, ...]) -> None:
        """Add an error for each value that another field requires or rules out. Unused fields may hold anything."""
        for filled_name, needed_name, message in NEEDED_TOGETHER:
            is_empty = self.chosen(needed_name) in (None, "") and needed_name not in self.errors
            if is_empty and self.chosen(filled_name) not in (None, ""):
                self.add_error(needed_name, message)
        self._check_sinks()
        self._check_mix()
        self.axes, problems = grid.read(self.cleaned_data, self.fields)
        for problem in problems:
            self.add_error("grid", problem)
        for name in unused:
            self.errors.pop(name, None)
        if self.chosen("revision") and str(self.chosen("model") or "").startswith(("/", ".", "~")):
            self.add_error("revision", "A folder has no revisions. Leave this empty, or enter a model from the hub.")
        if self.chosen("start_from"):
            self._check_start(self.chosen("start_from"))

    def clean_model(self) -> str:
        return model_name(self.cleaned_data["model"])

    def clean_name(self) -> str:
        return " ".join(str(self.cleaned_data["name"]).split())

    def clean_revision(self) -> str:
        revision = str(self.cleaned_data["revision"])
        if revision and not re.fullmatch(hub_files.REVISION, revision):
            raise ValidationError("Use only letters, digits and . / _ -")
        return revision

    def _check_sinks(self) -> None:
        for kind in sinks.TITLES:
            name = f"send_{kind}_secret"
            if name not in self.fields or not self.chosen(f"send_{kind}"):
                continue
            secret = self.chosen(name) or ""
            problem = vault.problem(secret) if secret else sinks.problem(SinkSpec(kind)).removeprefix("sinks: ")
            if problem:
                self.add_error(name, problem)

    def _check_mix(self) -> None:
        version, sources = self.chosen("dataset_version"), self.chosen("sources")
        if version is not None and sources:
            for problem in mixing.problems(data_of(version, 0, sources).every_source):
                self.add_error("sources", problem)

    def _check_start(self, folder: str) -> None:
        checkpoint = checkpoints.by_folder(folder)
        model, profile = str(self.chosen("model") or ""), self.chosen("profile")
        values = {"lora": self._lora(), "profile": profile and profile.spec, "host": self.chosen("host")}
        for name, problem in starting.problems(checkpoint, model=model, **values):
            self.add_error(name, problem)
        if checkpoint is not None:
            if "start_from" in self.cleaned_data:
                self.cleaned_data["start_from"] = checkpoint.folder
            self.cleaned_data["host"] = self.chosen("host") or checkpoint_hosts.host_for(checkpoint)


def choices_of(values: Mapping[str, Any], schema: dict[str, Any] | None = None) -> LaunchChoices:
    """Read and validate the choices that a program sends as JSON values by field name."""
    choices = LaunchChoices({name: form_value(value) for name, value in values.items()}, schema=schema)
    choices.is_valid()
    return choices
