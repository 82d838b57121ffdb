"""Clones with the fix for a diagnosis: the form's values with the catalogue's changes, each with its reason."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from controlplane.catalogue.hardware.models import HardwareProfile
from runs.engine.spec import hardware_of
from runs.launch.new_run.fields.advanced_fields import DEFAULT
from runs.launch.new_run.forms import LaunchForm
from runs.launch.preflight.finding import Finding, Fix, Grade
from workers.contract.wire.documents import ContractError
from workers.diagnosis.catalogue import CatalogueEntry, Change

CHOSEN_BY_HAND = "profile"
"""Value of `how` for a change that only a person can make: the right profile depends on what else should stay."""
MAX_ROUNDS = 3
"""Maximum number of preflight's remedies to add while the run still doesn't fit."""
MEMORY_CAUSES = ("gpu_memory", "vllm_no_cache", "vllm_cache_small", "vllm_sampler_memory")
"""Id prefixes of the causes that preflight's memory estimate also judges."""
EMPTY_LABELS = {"use_lora": "off", "save_total_limit": "all"}
"""Labels for the empty value of fields where it has a meaning."""

Findings = Callable[[LaunchForm], list[Finding]]


@dataclass(frozen=True)
class FieldChange:
    name: str
    label: str
    old: str
    new: str
    why: str


@dataclass(frozen=True)
class AppliedFix:
    entry: CatalogueEntry
    changes: list[FieldChange]
    by_hand: list[str]


def fix(
    initial: dict[str, Any], entry: CatalogueEntry, values: dict[str, str], schema: Any, findings_of: Findings
) -> AppliedFix:
    """Change the form's initial values by an entry's fix and describe the changes. `values` are the matches of the
    pattern's groups in the log."""
    old_values, reasons = dict(initial), {}
    by_hand = [change.why for change in entry.changes if change.how == CHOSEN_BY_HAND]
    fields = LaunchForm(schema=schema).fields
    is_halved = False
    for change in entry.changes:
        if change.field not in fields or (change.how == "double" and not is_halved):
            continue
        new_value = _new_value(change, initial.get(change.field), entry.filled(change.value, values))
        if new_value is not None:
            initial[change.field], reasons[change.field] = new_value, change.why
            is_halved = is_halved or change.how == "halve"
    if entry.id.startswith(MEMORY_CAUSES):
        reasons |= _until_it_fits(initial, schema, findings_of)
    form = LaunchForm(initial=initial, schema=schema)
    return AppliedFix(entry, list(_changes(form, old_values, initial, reasons)), by_hand)


def mark(form: LaunchForm, applied_fix: AppliedFix) -> None:
    """Attach each change to its field, for components/imported_mark.html."""
    for change in applied_fix.changes:
        if change.name in form.fields:
            form.fields[change.name].changed_from = change.old  # type: ignore[attr-defined]
            form.fields[change.name].changed_why = change.why  # type: ignore[attr-defined]


def _new_value(change: Change, old: Any, value: str) -> Any:
    """Compute the new value; return None if the form has it already or the old one can't be changed."""
    number = _number(old)
    if change.how == "set":
        is_on = change.field == "use_lora"
        return (None if old else True) if is_on else (None if _as_string(old) == value else value)
    limit = _number(value)
    if change.how == "at_most":
        return limit if limit is not None and (number is None or number > limit) else None
    if number is None:
        return None
    if change.how == "halve":
        half = number / 2 if isinstance(number, float) else number // 2
        return half if half else None
    return number * 2 if change.how == "double" else None


def _until_it_fits(initial: dict[str, Any], schema: Any, findings_of: Findings) -> dict[str, str]:
    """Add preflight's cheapest remedy for as long as its memory estimate says that the run doesn't fit. Return the
    reasons by field."""
    reasons: dict[str, str] = {}
    for _ in range(MAX_ROUNDS):
        remedy = _remedy(findings_of(LaunchForm(initial=initial, schema=schema)))
        if remedy is None:
            break
        for name, value in remedy.values.items():
            initial[name] = value
            reasons[name] = f"{remedy.label}: according to the memory estimate, the run would not fit otherwise"
    return reasons


def _remedy(findings: list[Finding]) -> Fix | None:
    stops = [finding for finding in findings if finding.grade == Grade.STOP and finding.field == "profile"]
    return next((finding.fixes[0] for finding in stops if finding.fixes), None)


def _changes(
    form: LaunchForm, old_values: dict[str, Any], new_values: dict[str, Any], reasons: dict[str, str]
) -> Iterator[FieldChange]:
    for name, why in reasons.items():
        old, new = _old_label(form, name, old_values), _label(form, name, new_values[name])
        if new not in (old, old.removeprefix(DEFAULT)) and name in form.fields:
            yield FieldChange(name, str(form.fields[name].label), old, new, why)


def _old_label(form: LaunchForm, name: str, old_values: dict[str, Any]) -> str:
    """Return the label of a field's old value. Unset gradient checkpointing is shown as the profile sets it."""
    value = old_values.get(name)
    if name == "gradient_checkpointing" and _as_string(value) == "":
        profile = HardwareProfile.objects.filter(pk=old_values.get("profile") or 0).first()
        with suppress(ContractError):  # preflight reports a profile that can't be read
            value = hardware_of(profile).checkpoints_gradients if profile else value
    return _label(form, name, value)


def _label(form: LaunchForm, name: str, value: Any) -> str:
    """Return a value as the form shows it, with the label of a choice."""
    if name == "profile":
        rows = form.fields["profile"].queryset  # type: ignore[attr-defined]
        return next((str(row) for row in rows if str(row.pk) == _as_string(value)), "none")
    choices = dict(getattr(form.fields.get(name), "choices", ()))
    labels = {"": EMPTY_LABELS.get(name, "empty"), "true": "on", "false": "off"}
    return str(choices.get(_as_string(value)) or labels.get(_as_string(value), _as_string(value)))


def _as_string(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _number(value: Any) -> int | float | None:
    if isinstance(value, int | float):
        return None if isinstance(value, bool) else value
    for kind in (int, float):
        with suppress(TypeError, ValueError):
            return kind(value)
    return None
