"""The expected time and cost of a launch as the Preflight panel shows them: a source, definition rows and notes."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.platform.templatetags.figures import duration, si, sig
from controlplane.platform.templatetags.optional import count
from runs.launch.new_run.several import Together
from runs.launch.preflight.draft import HostFacts
from runs.launch.preflight.duration import Duration

Line = str | SafeString


@dataclass(frozen=True)
class TimeView:
    source: str
    rows: list[tuple[str, str]]
    notes: list[Line]


def time_view(
    time: Duration | None,
    together: Together | None,
    machine: HostFacts | None,
    *,
    several: bool,
    at_once: int | None,
    episodes: bool,
) -> TimeView:
    """`machine`: the one that would be requested; `episodes`: an environment answers between turns."""
    rows = _times(time, together, several=several, at_once=at_once)
    rows += _costs(time, together, machine, several=several)
    return TimeView(_source(time), rows, _notes(time, machine, episodes=episodes))


def _source(time: Duration | None) -> str:
    if time is None:
        return "unknown"
    return f"by a run on {time.host.name}" if time.past else "rule of thumb, not measured"


def _times(
    time: Duration | None, together: Together | None, *, several: bool, at_once: int | None
) -> list[tuple[str, str]]:
    if time is None:
        return [("The run", "unknown")]
    rows = []
    alike = together is None or together.alike
    if alike:
        rows.append(("A step", f"about {duration(time.step_s)}, {si(time.tokens)} tokens"))
    if together and together.span and not alike:
        shortest, longest = together.span
        rows.append(("Each run", f"about {duration(shortest)} to {duration(longest)}"))
    elif time.seconds is not None:
        steps = f"{sig(time.steps, 7)} step{'' if time.steps == 1 else 's'}"
        rows.append(("Each run" if several else "The run", f"about {duration(time.seconds)} for {steps}"))
    if together and together.seconds is not None:
        order = f"{at_once} at a time" if at_once else "one after another"
        rows.append((f"All {len(together.each)}", f"about {duration(together.seconds)}, {order}"))
    return rows


def _costs(
    time: Duration | None, together: Together | None, machine: HostFacts | None, *, several: bool
) -> list[tuple[str, str]]:
    if time is None or time.gpu_hours is None:
        return [("Cost", "unknown")] if machine and machine.gpus else []
    rows = []
    if together is None or together.alike:
        cost = f": {time.cost}" if time.cost else ", cost unknown"
        rows.append(("GPU-hours each" if several else "GPU-hours", f"about {sig(time.gpu_hours)}{cost}"))
    if together:
        cost = f": {together.cost}" if together.cost else ""
        rows.append(("GPU-hours of all", f"about {sig(together.gpu_hours)}{cost}"))
    return rows


def _notes(time: Duration | None, machine: HostFacts | None, *, episodes: bool) -> list[Line]:
    notes = [_basis(time, machine, episodes=episodes), _price(time, machine)]
    if time:
        notes.append("Startup, evaluations and checkpoints are not counted.")
    return [note for note in notes if note]


def _basis(time: Duration | None, machine: HostFacts | None, *, episodes: bool) -> Line:
    if time is None:
        return "No estimate yet: no host has reported the model’s size."
    if time.past and time.pace:
        return format_html(
            'From <a href="{}">{}</a>, the nearest run there: {} tokens/s, {} a step (median of {}){}.',
            reverse("run", args=[time.past.id]),
            time.past.name,
            si(time.pace.tokens_per_s),
            duration(time.pace.step_s),
            sig(time.pace.steps),
            ", scaled to this batch and length" if time.scaled else "",
        )
    about = f"No recent run on {time.host.name} is like this one."
    if machine:
        about = f"Estimated for a {machine.name} machine that hasn’t been requested yet."
    answers = " The environment’s answers are assumed to take a second a turn." if episodes else ""
    return (
        f"{about} The rule goes by the model’s size, the GPUs, the rollout, and completions of full length; "
        f"it fits recorded runs on H200s within a factor of 2.{answers}"
    )


def _price(time: Duration | None, machine: HostFacts | None) -> str:
    if machine and machine.gpus:
        if not machine.gpu_hour:
            return f"No price per GPU-hour is known for machines of {machine.name}; an admin can enter it there."
        gpus = count(len(machine.gpus), "GPU,GPUs")
        paid = f"a machine of {gpus} is paid for as a whole, from its start until it leaves."
        return f"A GPU-hour there costs {machine.gpu_hour}; {paid}"
    if time and time.gpu_hours is not None and not time.cost:
        return f"{time.host.name} has no price per GPU-hour."
    return ""
