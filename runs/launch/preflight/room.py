"""Spare memory of the GPUs: fewer passes for the same step, with vLLM's share, offered as one click."""

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

MIN_GAIN = 1.05
"""Least speed-up, by the rule of thumb, that is worth a note."""


@dataclass(frozen=True)
class DivisionOffer:
    """A quicker division of the same step."""

    now: Division
    then: Division
    draft: Draft
    """The draft with the offer."""
    now_s: float
    """Seconds of a step now, by the rule of thumb."""
    then_s: float

    @property
    def gain(self) -> float:
        """Speed-up as a factor of the steps per second."""
        return self.now_s / self.then_s

    @property
    def values(self) -> dict[str, str]:
        """Values of the form's fields."""
        values = {
            "per_device_train_batch_size": str(self.then.micro_batch),
            "gradient_accumulation_steps": str(self.then.passes),
        }
        return values if self.then.share == self.now.share else {**values, "vllm_share": f"{self.then.share:g}"}


def check(draft: Draft) -> Iterator[Finding]:
    quicker = offer(draft)
    if quicker is None:
        return
    now, then = quicker.now, quicker.then
    share = "" if then.share == now.share else f", vLLM’s share {then.share:g}"
    yield note(
        "per_device_train_batch_size",
        f"The GPUs have room for more: {_fullest(draft)} now, and {_fullest(quicker.draft)} with {then.micro_batch} "
        f"completions per process in {_passes(then)}{share}, not {now.micro_batch} in {now.passes}. A step learns from "
        "the same completions.",
        f"By the rule of thumb, a step then takes {quicker.then_s:.2g} s, not {quicker.now_s:.2g} s: "
        f"{quicker.gain:.2g} times the steps per second.{_graphs(draft)}",
        Fix(f"Use the memory: {then.micro_batch} per process, {_passes(then)}{share}", quicker.values),
    )


def check_guide(draft: Draft) -> Iterator[Finding]:
    """Offer the division of the guide that a built-in profile comes from."""
    name = draft.hardware.profile if draft.hardware else ""
    shipped = next((profile for profile in SHIPPED if profile.name == name and profile.guide), None)
    if shipped is None or any(draft.value(name) != shipped.batch[name] for name in shipped.guide):
        return
    sizes = list(shipped.guide.values())
    yield note(
        "gradient_accumulation_steps",
        f"The guide behind this profile makes the same step in {sizes[1]} passes of {sizes[0]}.",
        "",
        Fix("The guide’s own batch", {field: str(size) for field, size in shipped.guide.items()}),
    )


def offer(draft: Draft) -> DivisionOffer | None:
    """Find the quickest division that fits each possible host; None: it is used already, gains too little, or is
    unknown."""
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
        length, moved = longest(changed), division.share != now.share
        fits = all(is_roomy(answer.estimate, longest=length, servers_too=moved) for answer in answers)
        if work is None or not answers or not fits:
            return None
        return max(step_s(work, then, parameters, room=room(answer), ahead=draft.ahead) for answer in answers)

    then = quickest(now, seconds)
    now_s, then_s = seconds(now), seconds(then) if then else None
    if then is None or now_s is None or then_s is None or now_s < MIN_GAIN * then_s:
        return None
    return DivisionOffer(now, then, _with(draft, then), now_s, then_s)


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
    """Explain CUDA graphs in a sentence: their sizes follow from the step's completions unless the profile wants all
    sizes."""
    server = draft.server
    if server is None or server.attached or server.all_graphs:
        return ""
    return " The server captures CUDA graphs for as many completions as the step asks of it, and no more."


def _fullest(draft: Draft) -> str:
    gpus = [gpu for answer in everywhere(draft) for gpu in answer.estimate.gpus if gpu.role != "server"]
    gpu = max(gpus, key=lambda gpu: gpu.total / gpu.card_gib)
    return f"about {gpu.total:.3g} of {gpu.card_gib:.3g} GiB"
