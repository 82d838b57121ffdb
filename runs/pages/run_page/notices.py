"""Banners of a run's page: what a run waits for, when it resumes, and what is in quarantine after it."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.platform.templatetags.figures import ago, clock
from runs.engine.models import Attempt, Lease, Run
from runs.engine.scheduling.recovery import PlannedResume
from runs.engine.sentences import Waiting, placement_text, resource_words, waiting
from runs.engine.states import RunStatus
from workers.contract.run import jobs


def wait_banner(run: Run, attempt: Attempt) -> tuple[str, str] | None:
    """Write the icon and the text of the banner of a run that has no figures yet."""
    if attempt.status == RunStatus.QUEUED:
        waits = waiting(attempt)
        if waits is None:
            return "clock", "It starts automatically as soon as its resources are free."
        return "clock", format_html("<strong>{}.</strong> {} It starts automatically.", _linked(waits), waits.machine)
    if attempt.status == RunStatus.STARTING and run.kind not in jobs.KINDS:
        on = f" on {placement}" if (placement := placement_text(attempt)) else ""
        accepted = format_html(", accepted {} ago", ago(attempt.claimed_at)) if attempt.claimed_at else ""
        first = (
            "Figures and charts begin with the first step." if run.trains else "Figures begin with the first results."
        )
        return "loader", format_html("<strong>Preparing{}{}.</strong> {}", on, accepted, first)
    return None


def _linked(waits: Waiting) -> str | SafeString:
    before = waits.before[:1].upper() + waits.before[1:]
    if not waits.run_id:
        return before
    link = format_html('<a href="{}">{}</a>', reverse("run", args=[waits.run_id]), waits.name)
    return format_html("{}{} ({}){}", before, link, waits.owner, waits.after)


def resume_texts(resumes: PlannedResume) -> tuple[SafeString, str]:
    """Explain when the run resumes, and from where."""
    number = f" ({resumes.number} of {resumes.of})" if resumes.number else ""
    if resumes.step is None:
        source = "There is no checkpoint, so it starts from the beginning."
    else:
        source = f"It continues from the checkpoint of step {resumes.step}."
    return format_html("Resumes automatically at {}{}.", clock(resumes.at), number), source


def quarantine_of(attempt: Attempt) -> dict[str, Any] | None:
    """Describe the resources of the attempt that are not proved free."""
    leases = list(attempt.leases.filter(state=Lease.QUARANTINED).select_related("host").order_by("pk"))
    if not leases:
        return None
    resources = [lease.resource for lease in leases]
    several = len(leases) > 1
    title = f"{resource_words(resources)} of {leases[0].host.name} {'are' if several else 'is'} in quarantine."
    gpus = any(name.startswith("gpu:") for name in resources)
    text = format_html(
        "Its release was not confirmed after this run, so nothing starts there. On the host, check what still uses "
        "{they}{how} and end it; then an operator can release {they}.",
        they="them" if several else "it",
        how=SafeString(" (<code>nvidia-smi</code> names the processes)") if gpus else "",
    )
    return {"title": title, "text": text, "lease_id": leases[0].pk}
