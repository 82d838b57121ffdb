"""Use of the GPUs' spare memory: fewer passes for the same step, offered as a one-click fix."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from controlplane.catalogue.hardware.shipped import SHIPPED_PROFILES
from runs.launch.preflight.draft import Draft
from runs.launch.preflight.duration import room, work_of
from runs.launch.preflight.estimating import on_each_host, shape_for
from runs.launch.preflight.finding import Finding, Fix, note
from runs.launch.preflight.memory import max_sequence_tokens
from workers.contract.memory.room import Division, is_roomy, quickest
from workers.contract.stack.step_time import step_s

MIN_GAIN = 1.05
"""Minimum speed-up, by the rule of thumb, that is worth a note."""


@dataclass(frozen=True)
class DivisionOffer:
    """A division of the same step into batches that is quicker than the current one."""

    current: Division
    offered: Division
    draft: Draft
    current_s: float
    """Seconds of a step with the current division, by the rule of thumb."""
    offered_s: float

    @property
    def gain(self) -> float:
        """Speed-up as a factor of the steps per second."""
        return self.current_s / self.offered_s

    @property
    def values(self) -> dict[str, str]:
        values = {
            "per_device_train_batch_size": str(self.offered.micro_batch),
            "gradient_accumulation_steps": str(self.offered.passes),
        }
        return (
            values if self.offered.share == self.current.share else {**values, "vllm_share": f"{self.offered.share:g}"}
        )


def check(draft: Draft) -> Iterator[Finding]:
    best = offer(draft)
    if best is None:
        return
    current, offered = best.current, best.offered
    share = "" if offered.share == current.share else f", vLLM’s share {offered.share:g}"
    yield note(
        "per_device_train_batch_size",
        f"The GPUs have room for more: {_fullest(draft)} are used now, and {_fullest(best.draft)} would be with "
        f"{offered.micro_batch} completions per process in {_passes(offered)}{share}, instead of "
        f"{current.micro_batch} in {current.passes}. A step learns from the same completions.",
        f"By the rule of thumb, a step then takes {best.offered_s:.2g} s instead of {best.current_s:.2g} s: "
        f"{best.gain:.2g} times the steps per second.{_graphs(draft)}",
        Fix(f"Use the memory: {offered.micro_batch} per process, {_passes(offered)}{share}", best.values),
    )


def check_guide(draft: Draft) -> Iterator[Finding]:
    """Offer the batch of the guide that a built-in profile comes from."""
    name = draft.hardware.profile if draft.hardware else ""
    shipped = next((profile for profile in SHIPPED_PROFILES if profile.name == name and profile.guide), None)
    if shipped is None or any(draft.value(name) != shipped.batch[name] for name in shipped.guide):
        return
    sizes = list(shipped.guide.values())
    yield note(
        "gradient_accumulation_steps",
        f"The guide behind this profile divides the same step into {sizes[1]} passes of {sizes[0]}.",
        "",
        Fix("Use the guide’s batch", {field: str(size) for field, size in shipped.guide.items()}),
    )


def offer(draft: Draft) -> DivisionOffer | None:
    """Find the quickest division that fits each possible host; return None if it is unknown, used already or gains too
    little."""
    hardware, shape = draft.hardware, shape_for(draft.inspection)
    own_config = hardware is not None and hardware.deepspeed is not None  # its sizes must agree with the run's
    fixed_size = draft.value("steps_per_generation") or draft.value("generation_batch_size")
    if hardware is None or shape is None or own_config or fixed_size or draft.value("loss_type") == "bnpo":
        return None
    if work_of(draft) is None:
        return None
    batch = draft.batch
    current = Division(batch.per_device_train_batch_size, batch.gradient_accumulation_steps, hardware.vllm_share)
    parameters = shape.total

    def seconds(division: Division) -> float | None:
        changed_draft = _with_division(draft, division)
        work, estimates, profile = (
            work_of(changed_draft),
            on_each_host(changed_draft),
            hardware.with_vllm_share(division.share),
        )
        length, share_changed = max_sequence_tokens(changed_draft), division.share != current.share
        fits = all(is_roomy(host.estimate, longest=length, servers_too=share_changed) for host in estimates)
        if work is None or not estimates or not fits:
            return None
        return max(step_s(work, profile, parameters, room=room(host), ahead=draft.ahead) for host in estimates)

    offered = quickest(current, seconds)
    current_s, offered_s = seconds(current), seconds(offered) if offered else None
    if offered is None or current_s is None or offered_s is None or current_s < MIN_GAIN * offered_s:
        return None
    return DivisionOffer(current, offered, _with_division(draft, offered), current_s, offered_s)


def _with_division(draft: Draft, division: Division) -> Draft:
    sizes = {
        "per_device_train_batch_size": division.micro_batch,
        "gradient_accumulation_steps": division.passes,
    }
    hardware = draft.hardware and draft.hardware.with_vllm_share(division.share)
    return replace(draft, grpo={**draft.grpo, **sizes}, hardware=hardware)


def _passes(division: Division) -> str:
    return "1 pass" if division.passes == 1 else f"{division.passes} passes"


def _graphs(draft: Draft) -> str:
    """Return a sentence on CUDA graphs, whose sizes follow from the step's completions, or "" if the run starts no
    server or the profile wants all sizes."""
    server = draft.server
    if server is None or server.attached or server.all_graphs:
        return ""
    return " The server captures CUDA graphs only for as many completions as the step requests from it."


def _fullest(draft: Draft) -> str:
    gpus = [gpu for host in on_each_host(draft) for gpu in host.estimate.gpus if gpu.role != "server"]
    gpu = max(gpus, key=lambda gpu: gpu.total / gpu.card_gib)
    return f"about {gpu.total:.3g} of {gpu.card_gib:.3g} GiB"
