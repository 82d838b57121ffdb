"""The choices of a run: datasets and reward configs by name, and a model's name."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import QuerySet

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.rewards.models import RewardVersion
from runs.engine.models import Run
from runs.engine.queries import readable
from workers.contract.run.settings import BY_NAME


class DatasetChoice(forms.ModelChoiceField):  # type: ignore[type-arg]  # not subscriptable when it runs
    def label_from_instance(self, obj: DatasetVersion) -> str:
        validation = f", {obj.validation_rows:,} for validation" if obj.validation_rows else ""
        return f"{obj.dataset.name} v{obj.number} · {obj.rows:,} rows{validation}"


class RewardChoice(forms.ModelChoiceField):  # type: ignore[type-arg]  # not subscriptable when it runs
    def label_from_instance(self, obj: RewardVersion) -> str:
        return str(obj)


class CloneField(forms.CharField):
    """The run that the form was filled from. One that was deleted meanwhile is no reason not to launch."""

    widget = forms.HiddenInput

    def clean(self, value: Any) -> Run | None:
        return Run.objects.filter(pk__in=readable([super().clean(value)])).first() if value else None


def offered_datasets() -> QuerySet[DatasetVersion]:
    return DatasetVersion.objects.filter(
        status=DatasetVersion.READY, archived_at__isnull=True, dataset__deleted_at__isnull=True
    )


def offered_profiles() -> QuerySet[HardwareProfile]:
    return HardwareProfile.objects.filter(archived_at=None)


def model_name(text: str) -> str:
    """A cleaned model name or path. Raises ValidationError if it can't be one."""
    model = text.strip()
    if any(ord(c) < 32 for c in model) or model.startswith("-"):
        raise forms.ValidationError("This is neither a folder nor a hub id.")
    return model


def bounds(name: str) -> dict[str, Any]:
    """The bounds of a form field that fills a setting, as Django's fields take them."""
    setting = BY_NAME[name]
    values = {"min_value": setting.low, "max_value": setting.high, "max_length": setting.longest}
    return {word: value for word, value in values.items() if value is not None}
