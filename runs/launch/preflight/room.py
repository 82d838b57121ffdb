"""Room that the GPUs leave: a step divided into fewer passes, and vLLM's share with it, offered as one click."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from controlplane.catalogue.hardware.shipped import SHIPPED
from runs.launch.preflight.draft import Draft
from runs.launch.preflight.duration import room, work_of
from runs.launch.preflight.estimating import everywhere, shape_for
from runs.launch.preflight.finding import Finding, Fix, note
from runs.launch.preflight.memory import longest
from workers.contract.memory.room import Division, is_roomy, quickest
from workers.contract.stack.step_time import step_s

LEAST_GAIN = 1.05
"""How many times as many steps a second it must give, by the rule of thumb, to be worth a note."""


@dataclass(frozen=True)
class Offer:
    """A quicker division of the same step."""

    now: Division
    then: Division
    draft: Draft
    """With it."""
    now_s: float
    """A step, by the rule of thumb."""
    then_s: float

    @property
    def gain(self) -> float:
        """Steps per second, as a multiple."""
        return self.now_s / self.then_s

    @property
    def values(self) -> dict[str, str]:
        """Of the form's fields."""
        values = {
            "per_device_train_batch_size": str(self.then.micro_batch),
            "gradient_accumulation_steps": str(self.then.passes),
        }
        return values if self.then.share == self.now.share else {**values, "vllm_share": f"{self.then.share:g}"}


def check(draft: Draft) -> Iterator[Finding]:
    found = offer(draft)
    if found is None:
        return
    now, then = found.now, found.then
    share = "" if then.share == now.share else f", vLLM’s share {then.share:g}"
    yield note(
        "per_device_train_batch_size",
        f"The GPUs have room for more: {_fullest(draft)} now, and {_fullest(found.draft)} with {then.micro_batch} "
        f"completions per process in {_passes(then)}{share}, not {now.micro_batch} in {now.passes}. A step learns from "
        "the same completions.",
        f"By the rule of thumb, a step takes {found.then_s:.2g} s then, not {found.now_s:.2g} s: {found.gain:.2g} "
        f"times the steps per second.{_graphs(draft)}",
        Fix(f"Use the memory: {then.micro_batch} per process, {_passes(then)}{share}", found.values),
    )


def check_guide(draft: Draft) -> Iterator[Finding]:
    """A built-in profile has another division than the guide that it comes from, which is one click away."""
    name = draft.hardware.profile if draft.hardware else ""
    shipped = next((one for one in SHIPPED if one.name == name and one.guide), None)
    if shipped is None or any(draft.value(name) != shipped.batch[name] for name in shipped.guide):
        return
    sizes = list(shipped.guide.values())
    yield note(
        "gradient_accumulation_steps",
        f"The guide behind this profile makes the same step in {sizes[1]} passes of {sizes[0]}.",
        "",
        Fix("The guide’s own batch", {field: str(size) for field, size in shipped.guide.items()}),
    )


def offer(draft: Draft) -> Offer | None:
    """The quickest division that fits each host the run may come to; None: it has that already, it would not gain
    enough, or nobody can tell."""
    hardware, shape = draft.hardware, shape_for(draft.inspection)
    own = hardware is not None and hardware.deepspeed is not None  # its sizes must agree with the run's
    whole = draft.value("steps_per_generation") or draft.value("generation_batch_size")
    if hardware is None or shape is None or own or whole or draft.value("loss_type") == "bnpo":
        return None
    if work_of(draft) is None:
        return None
    batch = draft.batch
    now = Division(batch.per_device_train_batch_size, batch.gradient_accumulation_steps, hardware.vllm_share)
    parameters = shape.total

    def seconds(division: Division) -> float | None:
        changed = _with(draft, division)
        work, answers, then = work_of(changed), everywhere(changed), hardware.with_vllm_share(division.share)
        most, moved = longest(changed), division.share != now.share
        fits = all(is_roomy(each.estimate, longest=most, servers_too=moved) for each in answers)
        if work is None or not answers or not fits:
            return None
        return max(step_s(work, then, parameters, room=room(each), ahead=draft.ahead) for each in answers)

    then = quickest(now, seconds)
    now_s, then_s = seconds(now), seconds(then) if then else None
    if then is None or now_s is None or then_s is None or now_s < LEAST_GAIN * then_s:
        return None
    return Offer(now, then, _with(draft, then), now_s, then_s)


def _with(draft: Draft, division: Division) -> Draft:
    sizes = {
        "per_device_train_batch_size": division.micro_batch,
        "gradient_accumulation_steps": division.passes,
    }
    hardware = draft.hardware and draft.hardware.with_vllm_share(division.share)
    return replace(draft, grpo={**draft.grpo, **sizes}, hardware=hardware)


def _passes(division: Division) -> str:
    return "1 pass" if division.passes == 1 else f"{division.passes} passes"


def _graphs(draft: Draft) -> str:
    """They need no setting: their sizes follow from the step's completions, unless the profile asks for all."""
    server = draft.server
    if server is None or server.attached or server.all_graphs:
        return ""
    return " The server captures CUDA graphs for as many completions as the step asks of it, and no more."


def _fullest(draft: Draft) -> str:
    gpus = [gpu for answer in everywhere(draft) for gpu in answer.estimate.gpus if gpu.role != "server"]
    gpu = max(gpus, key=lambda one: one.total / one.card_gib)
    return f"about {gpu.total:.3g} of {gpu.card_gib:.3g} GiB"
