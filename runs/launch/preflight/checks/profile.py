"""Checks of the hardware profile: its consistency, and the run's deviations from its intended settings."""

from collections.abc import Iterator
from math import prod
from typing import Any

from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Fix, label, note, stop
from workers.contract.run.hardware import Offload, Optimizer, Strategy, precision_of
from workers.contract.run.settings import of_section
from workers.contract.stack.deepspeed import RUN_SETTINGS, number_problems
from workers.contract.stack.hardware_rules import hardware_problems


def check(draft: Draft) -> Iterator[Finding]:
    if draft.hardware_problem:
        cause = f"This version can't read the profile: {draft.hardware_problem}."
        yield stop("profile", cause, "Open it under Hardware and save it again, or choose another.")
        return
    if draft.hardware is None:
        yield stop("profile", "No hardware profile is chosen.", "Choose one; the CPU profile works on every host.")
        return
    for problem in hardware_problems(draft.hardware):
        yield stop("profile", f"{draft.hardware.profile}: {problem}", "Correct the profile under Hardware.")
    for problem in number_problems(draft.hardware, {name: draft.value(name) for name in RUN_SETTINGS.values()}):
        yield stop("profile", f"{draft.hardware.profile}'s DeepSpeed config: {problem.sentence}", problem.fix)


def check_strategy(draft: Draft) -> Iterator[Finding]:
    hardware = draft.hardware
    if hardware is None:
        return
    shards = hardware.strategy not in (Strategy.NONE, Strategy.DDP)
    if shards and hardware.processes == 1 and hardware.offload == Offload.NONE:
        yield note("profile", f"{hardware.strategy} splits the training over processes, but the profile has only one.")
    if hardware.strategy == Strategy.ZERO3 and draft.lora:
        yield note("use_lora", "ZeRO-3 also shards the frozen weights, so each pass gathers them, which takes time.")


OVERRIDES = {
    "optim": "optimizer",
    "gradient_checkpointing": "gradient checkpointing",
    "use_liger_kernel": "Liger",
}
"""Advanced field -> name of the profile's setting that it overrides."""
LORA_LABELS = {"lora_r": "r", "lora_alpha": "α", "lora_dropout": "dropout", "lora_targets": "targets"}
PASS_SETTINGS = ("per_device_train_batch_size", "gradient_accumulation_steps")
"""Settings whose product is the number of completions in a step."""


def check_deviations(draft: Draft) -> Iterator[Finding]:
    if draft.hardware is None:
        return
    findings = [*_lora(draft), *_batch(draft), *_precision(draft), *_overrides(draft)]
    if len(findings) > 1:
        values = {name: value for finding in findings for fix in finding.fixes for name, value in fix.values.items()}
        worst_finding = findings[0]
        findings[0] = note(
            worst_finding.field,
            worst_finding.cause,
            worst_finding.fix,
            *worst_finding.fixes,
            Fix("Use all the profile's values", values),
        )
    yield from findings


def _lora(draft: Draft) -> Iterator[Finding]:
    intended = {name: value for name, value in draft.made_for.items() if name == "use_lora" or name.startswith("lora_")}
    if not intended:
        return
    if not intended.get("use_lora"):
        if draft.lora:
            train_all = Fix("Train all weights, as the profile does", {"use_lora": ""})
            yield note(
                "use_lora", "The profile was made for training all weights, but this run trains a LoRA.", "", train_all
            )
        return
    use_profile = Fix("Use the profile's LoRA", intended)
    if draft.lora is None:
        yield note(
            "use_lora",
            f"The profile was made for a LoRA of rank {intended.get('lora_r', '?')}, but this run trains all weights.",
            "",
            use_profile,
        )
        return
    differences = [
        f"{LORA_LABELS[name]} {_display_value(value)} instead of {intended[name]}"
        for setting in of_section("lora")
        if (name := setting.name) in intended
        and not _is_same(value := getattr(draft.lora, setting.path.removeprefix("lora.")), intended[name])
    ]
    if differences:
        cause = f"The profile was made for another LoRA. This run's has {', '.join(differences)}."
        yield note("use_lora", cause, "", use_profile)


def _batch(draft: Draft) -> Iterator[Finding]:
    only_divided = _is_only_divided(draft)
    for name, intended in draft.made_for.items():
        value = draft.grpo.get(name)
        if only_divided and name in PASS_SETTINGS:
            continue
        if name == "use_lora" or name.startswith("lora_") or value is None or _is_same(value, intended):
            continue
        yield note(
            name,
            f"The profile was made for {intended}, but this run has {_display_value(value)}.",
            "",
            Fix(f"Use the profile's {label(name)}: {intended}", {name: intended}),
        )


def _is_only_divided(draft: Draft) -> bool:
    """Return whether a step has as many completions as the profile intends, divided into other passes."""
    intended_values, chosen_values = (
        [values.get(name) for name in PASS_SETTINGS] for values in (draft.made_for, draft.grpo)
    )
    if not all(str(number).isdigit() for number in (*intended_values, *chosen_values)):
        return False
    return prod(int(str(number)) for number in intended_values) == prod(int(str(number)) for number in chosen_values)


def _precision(draft: Draft) -> Iterator[Finding]:
    """Report a precision that differs from the profile's. A run expresses its precision in two flags."""
    flags: dict[str, Any] = {name: draft.grpo[name] for name in ("bf16", "fp16") if name in draft.grpo}
    if draft.hardware is None or not flags or all(flags.values()):
        return
    run_precision, profile_precision = precision_of(draft.hardware, flags), precision_of(draft.hardware, {})
    if run_precision != profile_precision:
        yield note(
            "precision",
            f"The profile trains in {profile_precision}, but this run in {run_precision}.",
            "",
            Fix(f"Use the profile's precision: {profile_precision}", {"precision": "profile"}),
        )


def _overrides(draft: Draft) -> Iterator[Finding]:
    hardware = draft.hardware
    if hardware is None:
        return
    is_set = {
        "optim": hardware.optimizer != Optimizer.ADAMW,
        "gradient_checkpointing": hardware.gradient_checkpointing is not None,
        "use_liger_kernel": hardware.liger_kernels,
    }
    for name, setting in OVERRIDES.items():
        if name in draft.grpo and is_set[name]:
            fix = Fix(f"Use the profile's {setting}", {name: ""})
            yield note(name, f"{name} is set here and overrides the profile.", "", fix)


def _is_same(value: Any, form_value: str) -> bool:
    if isinstance(value, tuple):
        return set(value) == set(form_value.replace(",", " ").split())
    try:
        return float(value) == float(form_value)
    except (TypeError, ValueError):
        return str(value) == form_value


def _display_value(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)
