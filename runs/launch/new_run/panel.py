"""The Preflight panel of the New run page: the findings' verdict, the launch button, memory, and time and cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.catalogue.hardware.profile_pages.memory_bars import MemoryView, view
from controlplane.platform.templatetags.figures import duration, si, sig
from controlplane.platform.templatetags.optional import count
from runs.launch.new_run import drafting, past_runs, several
from runs.launch.new_run.drafting import Forecast
from runs.launch.new_run.forms import LaunchForm
from runs.launch.new_run.several import Checks, GroupEstimate
from runs.launch.preflight import estimating
from runs.launch.preflight.draft import HostFacts
from runs.launch.preflight.duration import Duration
from runs.launch.preflight.finding import Finding, Grade
from runs.launch.preflight.hosts import machine_to_ask


def panel_of(form: LaunchForm, checks: Checks) -> dict[str, Any]:
    draft_check, findings, parts = checks.checked, checks.findings, checks.parts
    draft = draft_check.draft
    host_estimate, machine = estimating.best_estimate(draft), machine_to_ask(draft)
    host = machine or (host_estimate.host if host_estimate else None)
    at_once, group_estimate = form.chosen("at_once"), several.estimate_group(parts, form.chosen("at_once"))
    time = group_estimate.durations[0] if group_estimate else past_runs.duration(draft, draft_check.hosts, host)
    limit = min(at_once, len(parts)) if at_once else None
    forecast = drafting.forecast(draft, draft_check.hosts)
    requested_machine = machine if draft.hardware and draft.hardware.trainer_gpus else None
    shown_time = None
    if time or (requested_machine and requested_machine.gpus):
        shown_time = _time_view(
            time,
            group_estimate,
            requested_machine,
            has_several=bool(parts),
            at_once=limit,
            episodes=form.episodes() is not None,
        )
    return {
        "findings": findings,
        "several": parts,
        "axes": form.axes,
        "at_once": limit,
        "readiness": readiness(findings, form.to_choose, launch_label(forecast, len(parts), limit)),
        "memory": _memory(host_estimate) if host_estimate else None,
        "fits": drafting.ranked_profiles(form, draft),
        "time": shown_time,
        "forecast": forecast,
        "labels": {name: field.label for name, field in form.fields.items()},
    }


def _memory(host_estimate: estimating.HostEstimate) -> MemoryView:
    host, length = host_estimate.host, host_estimate.settings.length
    ram = host.ram_mib / 1024
    return view(host_estimate.estimate, length=length, where=host.name, indexes=host_estimate.indexes, host_ram_gib=ram)


# --- readiness --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Readiness:
    tone: str
    icon: str
    verdict: str
    checks: str
    link_tone: str
    button: str
    ready: bool = False
    also: str = ""
    """Sentence on the choices that are missing as well."""


def readiness(findings: Sequence[Finding], to_choose: Sequence[str], launch: str) -> Readiness:
    """Judge whether a launch is ready. `to_choose` are labels of missing choices; `launch` is the label of the button
    once nothing is missing."""
    problems = count(sum(finding.grade == Grade.STOP for finding in findings), "problem,problems")
    warnings = count(sum(finding.grade == Grade.WARN for finding in findings), "warning,warnings")
    missing_labels = ", ".join(to_choose).lower()
    if problems:
        missing_sentence = f"Still to choose: {missing_labels}." if missing_labels else ""
        fix = f"Fix {problems}"
        return Readiness("bad", "circle-x", f"{fix} first", problems, "bad", f"{fix} to launch", also=missing_sentence)
    if to_choose:
        other_labels = f" and {len(to_choose) - 1} more" if len(to_choose) > 1 else ""
        button = f"Choose a {to_choose[0].lower()}{other_labels} to launch"
        link, link_tone = f"{len(to_choose)} to choose", "warn" if warnings else ""
        return Readiness("open", "circle-dashed", f"Still to choose: {missing_labels}", link, link_tone, button)
    if warnings:
        verdict = f"Ready to launch, with {warnings}"
        return Readiness("warn", "triangle-alert", verdict, warnings, "warn", launch, ready=True)
    return Readiness("good", "circle-check", "Ready to launch", "Checked", "good", launch, ready=True)


def launch_label(forecast: Forecast, runs: int, at_once: int | None) -> str:
    """Choose the label of the launch button. `runs` is the number of runs in a launch of several, `at_once` how many of
    them may run at the same time."""
    if not runs:
        return forecast.button
    bound = f", {at_once} at a time" if at_once else ""
    return f"{'Launch' if forecast.starts_now else 'Queue'} {runs} runs{bound}"


# --- time and cost ----------------------------------------------------------------------------------------------------

Line = str | SafeString


@dataclass(frozen=True)
class TimeView:
    source: str
    rows: list[tuple[str, str]]
    notes: list[Line]


def _time_view(
    time: Duration | None,
    group_estimate: GroupEstimate | None,
    machine: HostFacts | None,
    *,
    has_several: bool,
    at_once: int | None,
    episodes: bool,
) -> TimeView:
    """Describe the expected time and cost. `machine` is the one that would be requested; `episodes` is true if an
    environment responds between turns."""
    rows = _times(time, group_estimate, has_several=has_several, at_once=at_once)
    rows += _costs(time, group_estimate, machine, has_several=has_several)
    source = "unknown"
    if time is not None:
        source = f"based on a run on {time.host.name}" if time.past else "rule of thumb, not measured"
    notes = [_basis(time, machine, episodes=episodes), _price(time, machine)]
    if time:
        notes.append("Startup, evaluations and checkpoints are not included.")
    return TimeView(source, rows, [note for note in notes if note])


def _times(
    time: Duration | None, group_estimate: GroupEstimate | None, *, has_several: bool, at_once: int | None
) -> list[tuple[str, str]]:
    if time is None:
        return [("The run", "unknown")]
    rows = []
    all_alike = group_estimate is None or group_estimate.alike
    if all_alike:
        rows.append(("A step", f"about {duration(time.step_s)}, {si(time.tokens)} tokens"))
    if group_estimate and group_estimate.span and not all_alike:
        shortest_s, longest_s = group_estimate.span
        rows.append(("Each run", f"about {duration(shortest_s)} to {duration(longest_s)}"))
    elif time.seconds is not None:
        steps = f"{sig(time.steps, 7)} step{'' if time.steps == 1 else 's'}"
        rows.append(("Each run" if has_several else "The run", f"about {duration(time.seconds)} for {steps}"))
    if group_estimate and group_estimate.seconds is not None:
        order = f"{at_once} at a time" if at_once else "one after another"
        rows.append((f"All {len(group_estimate.durations)}", f"about {duration(group_estimate.seconds)}, {order}"))
    return rows


def _costs(
    time: Duration | None, group_estimate: GroupEstimate | None, machine: HostFacts | None, *, has_several: bool
) -> list[tuple[str, str]]:
    if time is None or time.gpu_hours is None:
        return [("Cost", "unknown")] if machine and machine.gpus else []
    rows = []
    if group_estimate is None or group_estimate.alike:
        cost = f": {time.cost}" if time.cost else ", cost unknown"
        rows.append(("GPU-hours each" if has_several else "GPU-hours", f"about {sig(time.gpu_hours)}{cost}"))
    if group_estimate:
        cost = f": {group_estimate.cost}" if group_estimate.cost else ""
        rows.append(("GPU-hours in total", f"about {sig(group_estimate.gpu_hours)}{cost}"))
    return rows


def _basis(time: Duration | None, machine: HostFacts | None, *, episodes: bool) -> Line:
    if time is None:
        return "No estimate yet, because no host has reported the model’s size."
    if time.past and time.pace:
        return format_html(
            'Based on <a href="{}">{}</a>, the most similar run there: {} tokens/s, {} a step (median of {} steps){}.',
            reverse("run", args=[time.past.id]),
            time.past.name,
            si(time.pace.tokens_per_s),
            duration(time.pace.step_s),
            sig(time.pace.steps),
            ", scaled to this batch and length" if time.scaled else "",
        )
    about = f"No recent run on {time.host.name} is similar to this one."
    if machine:
        about = f"Estimated for a {machine.name} machine that hasn’t been requested yet."
    tools = " The environment is assumed to take a second to respond in each turn." if episodes else ""
    return (
        f"{about} The rule uses the model’s size, the GPUs, the rollout, and completions of full length; "
        f"its estimates for recorded runs on H200s are within a factor of 2.{tools}"
    )


def _price(time: Duration | None, machine: HostFacts | None) -> str:
    if machine and machine.gpus:
        if not machine.gpu_hour:
            return f"No price per GPU-hour is known for machines of {machine.name}; an admin can enter one there."
        gpus = count(len(machine.gpus), "GPU,GPUs")
        charge_sentence = f"the whole machine ({gpus}) is charged from its start until it is given back."
        return f"A GPU-hour there costs {machine.gpu_hour}; {charge_sentence}"
    if time and time.gpu_hours is not None and not time.cost:
        return f"No price per GPU-hour is set for {time.host.name}, so the cost is unknown."
    return ""
