"""The hardware profile: chosen, consistent, and the run's deviations from its intended settings."""

from collections.abc import Iterator
from math import prod
from typing import Any

from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Fix, label, note, stop
from workers.contract.run.hardware import Offload, Optimizer, Strategy, precision_of
from workers.contract.run.settings import of_section
from workers.contract.stack.deepspeed import RUNS, number_problems
from workers.contract.stack.hardware_rules import hardware_problems


def check(draft: Draft) -> Iterator[Finding]:
    if draft.hardware is None:
        yield stop("profile", "No hardware profile is chosen.", "Choose one; the CPU profile works on every host.")
        return
    for problem in hardware_problems(draft.hardware):
        yield stop("profile", f"{draft.hardware.profile}: {problem}", "Correct the profile under Hardware.")
    for problem in number_problems(draft.hardware, {name: draft.value(name) for name in RUNS.values()}):
        yield stop("profile", f"{draft.hardware.profile}'s DeepSpeed config: {problem.sentence}", problem.fix)


def check_strategy(draft: Draft) -> Iterator[Finding]:
    hardware = draft.hardware
    if hardware is None:
        return
    shards = hardware.strategy not in (Strategy.NONE, Strategy.DDP)
    if shards and hardware.processes == 1 and hardware.offload == Offload.NONE:
        yield note("profile", f"{hardware.strategy} splits the training over processes, but the profile has only one.")
    if hardware.strategy == Strategy.ZERO3 and draft.lora:
        yield note("use_lora", "ZeRO-3 also shards the frozen weights: each pass gathers them, which costs time.")


OVERRIDES = {"optim": "optimizer", "gradient_checkpointing": "gradient checkpointing", "use_liger_kernel": "Liger"}
"""Advanced fields that override the profile's settings."""
LORA = {"lora_r": "r", "lora_alpha": "α", "lora_dropout": "dropout", "lora_targets": "targets"}
PASSES = ("per_device_train_batch_size", "gradient_accumulation_steps")
"""Settings whose product is the number of completions of a step."""


def check_deviations(draft: Draft) -> Iterator[Finding]:
    if draft.hardware is None:
        return
    findings = [*_lora(draft), *_batch(draft), *_precision(draft), *_overrides(draft)]
    if len(findings) > 1:
        values = {name: text for finding in findings for fix in finding.fixes for name, text in fix.values.items()}
        first = findings[0]
        findings[0] = note(
            first.field, first.cause, first.fix, *first.fixes, Fix("Use all the profile's values", values)
        )
    yield from findings


def _lora(draft: Draft) -> Iterator[Finding]:
    intended = {name: text for name, text in draft.made_for.items() if name == "use_lora" or name.startswith("lora_")}
    if not intended:
        return
    if not intended.get("use_lora"):
        if draft.lora:
            off = Fix("Use the profile's: all weights", {"use_lora": ""})
            yield note("use_lora", "The profile was made for training all weights; this run trains a LoRA.", "", off)
        return
    use = Fix("Use the profile's LoRA", intended)
    if draft.lora is None:
        yield note(
            "use_lora",
            f"The profile was made for a LoRA of rank {intended.get('lora_r', '?')}, and this run trains all weights.",
            "",
            use,
        )
        return
    differences = [
        f"{LORA[name]} {_text(value)} instead of {intended[name]}"
        for setting in of_section("lora")
        if (name := setting.name) in intended
        and not _same(value := getattr(draft.lora, setting.path.removeprefix("lora.")), intended[name])
    ]
    if differences:
        yield note("use_lora", f"The profile was made for another LoRA: here {', '.join(differences)}.", "", use)


def _batch(draft: Draft) -> Iterator[Finding]:
    divided = _only_divided(draft)
    for name, text in draft.made_for.items():
        value = draft.grpo.get(name)
        if divided and name in PASSES:
            continue
        if name == "use_lora" or name.startswith("lora_") or value is None or _same(value, text):
            continue
        yield note(
            name,
            f"The profile was made for {text}, and this run has {_text(value)}.",
            "",
            Fix(f"Use the profile's {label(name)}: {text}", {name: text}),
        )


def _only_divided(draft: Draft) -> bool:
    """Return True if a step has as many completions as the profile's, in other passes."""
    meant, own = ([values.get(name) for name in PASSES] for values in (draft.made_for, draft.grpo))
    if not all(str(number).isdigit() for number in (*meant, *own)):
        return False
    return prod(int(str(number)) for number in meant) == prod(int(str(number)) for number in own)


def _precision(draft: Draft) -> Iterator[Finding]:
    """Compare the form's precision, which a run expresses in two flags, with the profile's. Nothing if the form sets
    none."""
    flags: dict[str, Any] = {name: draft.grpo[name] for name in ("bf16", "fp16") if name in draft.grpo}
    if draft.hardware is None or not flags or all(flags.values()):
        return
    chosen, profiles = precision_of(draft.hardware, flags), precision_of(draft.hardware, {})
    if chosen != profiles:
        yield note(
            "precision",
            f"The profile trains in {profiles}, and this run in {chosen}.",
            "",
            Fix(f"Use the profile's precision: {profiles}", {"precision": "profile"}),
        )


def _overrides(draft: Draft) -> Iterator[Finding]:
    hardware = draft.hardware
    if hardware is None:
        return
    decided = {
        "optim": hardware.optimizer != Optimizer.ADAMW,
        "gradient_checkpointing": hardware.gradient_checkpointing is not None,
        "use_liger_kernel": hardware.liger_kernels,
    }
    for name, word in OVERRIDES.items():
        if name in draft.grpo and decided[name]:
            fix = Fix(f"Use the profile's {word}", {name: ""})
            yield note(name, f"{name} is set here and overrides the profile.", "", fix)


def _same(value: Any, text: str) -> bool:
    if isinstance(value, tuple):
        return set(value) == set(text.replace(",", " ").split())
    try:
        return float(value) == float(text)
    except (TypeError, ValueError):
        return str(value) == text


def _text(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)
