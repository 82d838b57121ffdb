"""The fields that choose rows of the catalogue, and the queries of what they offer."""

from collections.abc import Mapping
from typing import Any, TypeVar

from django import forms
from django.db.models import Model, QuerySet

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned.queries import offered_versions
from runs.engine.models import Run
from runs.engine.queries import valid_ids
from runs.launch.new_run.fields.table import BY_FIELD

ModelT = TypeVar("ModelT", bound=Model)


class DatasetChoice(forms.ModelChoiceField):  # type: ignore[type-arg]  # not subscriptable when it runs
    def label_from_instance(self, obj: DatasetVersion) -> str:
        validation = f", {obj.validation_rows:,} for validation" if obj.validation_rows else ""
        return f"{obj.dataset.name} v{obj.number} · {obj.rows:,} rows{validation}"


class EnvironmentChoice(forms.ModelChoiceField):  # type: ignore[type-arg]  # not subscriptable when it runs
    def label_from_instance(self, obj: EnvironmentVersion) -> str:
        parts = ", ".join(part.name for part in obj.specs)
        return f"{obj} · {parts}" if parts else str(obj)


class CloneField(forms.CharField):
    """The run that the form was filled from; None if it has been deleted since, which doesn't prevent the launch."""

    widget = forms.HiddenInput

    def clean(self, value: Any) -> Run | None:
        return Run.objects.filter(pk__in=valid_ids([super().clean(value)])).first() if value else None


def row_fields(chosen_values: Mapping[str, Any]) -> dict[str, forms.Field]:
    """Build the fields that choose rows. Rows in `chosen_values` are offered even if archived since."""

    def field(name: str, rows: QuerySet[Any], kind: Any = forms.ModelChoiceField) -> forms.Field:
        row = BY_FIELD[name]
        field: forms.Field = kind(rows, empty_label=row.empty, **row.form_arguments)
        field.error_messages["invalid_choice"] = "This no longer exists. Choose another."
        return field

    rewards, other_rewards = (
        offered_versions(RewardVersion, chosen_values.get(name)) for name in ("reward_version", "eval_reward_version")
    )
    environments = offered_versions(EnvironmentVersion, chosen_values.get("environment"))
    # Without the reports, which are large: only the chosen version's is read.
    datasets = offered_datasets().select_related("dataset").defer("report")
    return {
        "dataset_version": field("dataset_version", datasets, DatasetChoice),
        "reward_version": field("reward_version", rewards),
        "eval_reward_version": field("eval_reward_version", other_rewards),
        "profile": field("profile", offered_profiles()),
        "host": field("host", Host.objects.all()),
        "environment": field("environment", environments, EnvironmentChoice),
    }


def offered_datasets() -> QuerySet[DatasetVersion]:
    return DatasetVersion.objects.filter(
        status=DatasetVersion.READY, archived_at__isnull=True, dataset__deleted_at__isnull=True
    )


def offered_profiles() -> QuerySet[HardwareProfile]:
    return HardwareProfile.objects.filter(archived_at=None)


def row_by_id(model: type[ModelT], sent_id: Any) -> ModelT | None:
    """Find a row by its id as a form sends it; return None if there is no such row or it isn't an id."""
    number = str(sent_id or "")
    is_number = number.isascii() and number.isdigit() and len(number) < 18
    return model._default_manager.filter(pk=int(number)).first() if is_number else None


def model_name(raw_name: str) -> str:
    """Strip a model's name or path. Raises ValidationError if it can't be one."""
    model = raw_name.strip()
    if any(ord(c) < 32 for c in model) or model.startswith("-"):
        raise forms.ValidationError("This is neither a folder nor a hub id.")
    return model
