"""The memory model beside what was measured on GPUs: a trainer alone in tests/gpu/memory.json, whole runs in
tests/gpu/results.json.

Figures are GiB per GPU without vLLM's share. Two things are left out of a comparison, as they are no need of the run:
the memory that vLLM 0.22 left in the allocator of the process that sends the weights, 2 GiB for each update until
torch wants them back, and the driver's own reserve, which NVML's first memory call counts: what an idle GPU had in use
before the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from tests.gpu import memory, models, results, setups
from tests.gpu.memory_cases import FAMILIES
from workers.contract.memory import Estimate, estimate
from workers.contract.memory.parts import Part, Settings
from workers.contract.memory.shapes import Shape, shape_of
from workers.contract.memory.trainer import peak, sends_weights
from workers.contract.run.hardware import HardwareSpec, Rollout, ServerSpec
from workers.contract.run.spec import LoraSpec
from workers.contract.wire.documents import from_dict

CARD_GIB = 139.8
"""Of the H200s that all of it ran on."""
PROMPT_TOKENS = 60
"""Of the prompts of the whole runs."""


@dataclass(frozen=True)
class Compared:
    name: str
    gpu: int
    measured: float
    estimated: float

    @property
    def error_percent(self) -> float:
        return 100 * (self.estimated / self.measured - 1)


def shape_named(name: str) -> Shape:
    config: dict[str, Any] = dict(FAMILIES.get(name) or {"model_type": "qwen2", **asdict(models.SHAPES[name])})
    shape = shape_of({"model_type": config.pop("model_type"), "config": config})
    assert shape is not None
    return shape


# --- a trainer alone --------------------------------------------------------------------------------------------------


def trainers(path: Path = memory.COMMITTED) -> Iterator[Compared]:
    for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
        shape, hardware, settings = of_case(case)
        measured = case["reserved_gib"] + case["outside_torch_gib"]
        yield Compared(case["name"], 0, measured, peak(shape, hardware, settings).total)


def of_case(case: dict[str, Any]) -> tuple[Shape, HardwareSpec, Settings]:
    hardware = from_dict(HardwareSpec, {"profile": "memory", "trainer_gpus": 1, **case["hardware"]})
    if case["merges"]:
        hardware = replace(hardware, rollout=Rollout.COLOCATE)
    settings = Settings(
        batch=case["batch"],
        prompt_tokens=case["prompt_tokens"],
        completion_tokens=case["completion_tokens"],
        passes=case["passes"],
        generated=case["batch"] if case["generates"] else 0,
        reference=bool(case["grpo"].get("beta")),
        lora=from_dict(LoraSpec, case["lora"]) if case["lora"] else None,
        optimizer=hardware.optimizer,
        checkpointing=hardware.gradient_checkpointing is not False,
    )
    return shape_named(case["model"]), hardware, settings


# --- whole runs -------------------------------------------------------------------------------------------------------


def of_setup(setup: setups.Setup) -> tuple[HardwareSpec, Settings, Estimate]:
    from controlplane.catalogue.hardware.shipped import by_slug  # Django's models: only once a sitting has set it up

    shipped = by_slug(setup.slug)
    values = {**shipped.batch, **setup.profile, **setup.launch}
    spec = from_dict(HardwareSpec, {**asdict(shipped.spec), **_own(values)})
    if spec.server is not None:
        of_server = {
            name.removeprefix("server_"): value for name, value in values.items() if name.startswith("server_")
        }
        spec = replace(spec, server=from_dict(ServerSpec, {**asdict(spec.server), **of_server}))
    batch, passes = values["per_device_train_batch_size"], values["gradient_accumulation_steps"]
    settings = Settings(
        batch=batch,
        prompt_tokens=PROMPT_TOKENS,
        completion_tokens=values["max_completion_length"],
        passes=passes,
        generated=batch * passes if spec.rollout is Rollout.TRANSFORMERS else 0,
        lora=_lora(values) or shipped.lora,
        optimizer=spec.optimizer,
    )
    cards = [CARD_GIB] * spec.trainer_gpus
    answer = estimate(shape_named(setup.shape), spec, settings, cards=cards, servers=[CARD_GIB] * spec.server_gpus)
    return spec, settings, answer


def _lora(values: dict[str, Any]) -> LoraSpec | None:
    return LoraSpec(values["lora_r"], values["lora_alpha"]) if "lora_r" in values else None


def _own(values: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(HardwareSpec)}
    return {name: value for name, value in values.items() if name in names}


def runs(entries: list[results.Entry]) -> Iterator[Compared]:
    """The trainers' GPUs of all entries whose memory can be compared."""
    for entry in entries:
        setup = setups.EVERYTHING.get(entry["name"])
        if not isinstance(setup, setups.Setup):
            continue
        spec, settings, answer = of_setup(setup)
        for number, (gpu, parts) in enumerate(zip(answer.gpus, entry["peak_parts_gib"], strict=False)):
            if "trainer_torch" not in parts or (number == 0 and sends_weights(spec)):
                continue
            asleep = spec.rollout is Rollout.COLOCATE and spec.colocate_sleep
            if asleep or (spec.server and spec.server.shared):
                # What isn't torch's can't be told from vLLM's.
                own = peak(shape_named(setup.shape), spec, settings)
                yield Compared(entry["name"], number, parts["trainer_torch"], own.total - own.parts[Part.CONTEXT])
            else:
                measured = parts["trainer_torch"] + parts["contexts_and_rest"] - _before_gib(entry, number)
                yield Compared(entry["name"], number, measured, gpu.trainer)


def _before_gib(entry: results.Entry, number: int) -> float:
    receipts = [kill["receipt"]["gpus"] for kill in entry.get("kills") or () if kill.get("receipt")]
    return receipts[0][number]["before_mib"] / 1024 if receipts else 0.0


def with_estimates(entry: results.Entry) -> results.Entry:
    """An entry of results.json with the model's answer for its set-up."""
    setup = setups.EVERYTHING.get(entry["name"])
    if not isinstance(setup, setups.Setup) or not setup.gpus:
        return entry
    spec, settings, answer = of_setup(setup)
    shape = shape_named(setup.shape)
    # The trainer's own peak, also where vLLM sleeps and the card is fullest while it is awake.
    own = [peak(shape, spec, settings, main=rank == 0).total for rank in range(spec.trainer_gpus)]
    own += [gpu.trainer for gpu in answer.gpus[spec.trainer_gpus :]]
    parts = [{part.value: round(value, 2) for part, value in gpu.parts.items()} for gpu in answer.gpus]
    return {**entry, "estimate_gib": [round(size, 2) for size in own], "estimate_parts_gib": parts}
