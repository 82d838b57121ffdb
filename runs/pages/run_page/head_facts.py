"""Facts and banners in a run page's head: model, dataset, rewards, profile, placement, status, and what it waits
for."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from controlplane.platform.templatetags.figures import about, ago, clock, duration, sig
from controlplane.platform.templatetags.optional import link
from runs.engine.jobs.results import JobView
from runs.engine.models import Attempt, Lease, Run
from runs.engine.queries import Summary
from runs.engine.scheduling.recovery import PlannedResume
from runs.engine.sentences import STOPS, Waiting, placement_text, resource_words, waiting
from runs.engine.states import ACTIVE, FINAL, RunStatus
from runs.engine.warm import overview as warm_servers
from runs.engine.warm.overview import WarmLine
from workers.contract.run import jobs

UNKNOWN = "–"


SetupFact = tuple[str, str, str | SafeString, str]
"""A fact about a run's setup, as (label, icon, text, title)."""


def setup_facts(run: Run) -> Iterator[SetupFact]:
    model = _value_at(run.spec, "model", "path")
    # A hub id, or a folder, of which only the last part is shown.
    name = model.rstrip("/").rsplit("/", 1)[-1] if model.startswith("/") else model
    yield "Model", "box", name, model
    if run.kind != jobs.WARM:
        version = run.dataset_version
        address = reverse("dataset_version", args=[version.dataset_id, version.number])
        yield "Dataset", "database", link(address, f"{version.dataset.name} v{version.number}"), ""
        yield "Rewards", "scale", _rewards(run), ""
    profile = _value_at(run.spec, "hardware", "profile")
    if run.profile or profile != UNKNOWN:
        yield "Profile", "sliders-horizontal", _profile(run, profile), ""
    yield "Where", "server", _placement(run), ""
    if server := warm_servers.server_of(run.latest()):
        yield "Server", "flame", format_html("warm: {}", link(reverse("run", args=[server.pk]), server.name)), ""
    if run.kind == jobs.WARM and (line := warm_servers.line_of(run)):
        overview = link(f"{reverse('hardware')}#warm-servers", "all warm servers")
        yield "Used by", "users", format_html("{} · {}", _warm_use(line), overview), ""


def _rewards(run: Run) -> str | SafeString:
    version = run.reward_version
    if version is None or version.config.deleted_at:
        return SafeString('<span class="soft">deleted</span>')
    return link(reverse("reward_version", args=[version.config_id, version.number]), str(version))


def _profile(run: Run, name: str) -> str | SafeString:
    if run.profile and not run.profile.deleted_at:
        return link(reverse("profile", args=[run.profile_id]), run.profile.name)
    return format_html('{} <span class="soft">(deleted)</span>', name)


def _placement(run: Run) -> str | SafeString:
    attempt = run.latest()
    if placement := placement_text(attempt):
        bare = (attempt.placement or {}).get("unsandboxed")
        warning = SafeString(' <span class="bad">code runs without a sandbox</span>') if bare else ""
        return format_html("{}{}", link(reverse("hardware"), placement), warning)
    return f"{run.host.name}, once it is free" if run.host else "any host that fits"


def _warm_use(line: WarmLine) -> str | SafeString:
    if line.user:
        return link(reverse("run", args=[line.user.pk]), line.user.name)
    if line.stops_at:
        return format_html("nobody for {}; it ends at {}", ago(line.row.idle_since), f"{line.stops_at:%H:%M}")
    return f"nobody: {line.row.leaving}" if line.row.leaving else "nobody"


def _value_at(spec: Any, *path: str) -> str:
    """Return a string of the frozen spec, or UNKNOWN if it is missing: another version may have written the spec."""
    for name in path:
        spec = spec.get(name) if isinstance(spec, dict) else None
    return spec if isinstance(spec, str) and spec else UNKNOWN


@dataclass(frozen=True)
class StatusFact:
    text: str | SafeString
    css: str = "fact"
    title: str = ""
    data: str = ""
    """The attribute by which the page's script finds the element."""
    role: str = ""


def status_facts(
    run: Run, attempt: Attempt, summary: Summary, *, job: JobView | None, stop_effect: str
) -> Iterator[StatusFact]:
    has_failed = attempt.status == RunStatus.FAILED
    yield from _job_facts(job, summary, failed=has_failed) if job else _training_facts(run, summary, failed=has_failed)
    if summary["stop_requested"] and attempt.status in ACTIVE and attempt.status != RunStatus.QUEUED:
        yield StatusFact(_stop(attempt), "fact stopping warn cut", stop_effect, role="status")
    if summary["phase_detail"] and attempt.status == RunStatus.STARTING:
        yield StatusFact(summary["phase_detail"], "fact soft cut", summary["phase_detail"])
    attempts = sorted(run.attempts.all(), key=lambda attempt: attempt.number) if attempt.status in FINAL else []
    timed_attempts = [(ended_attempt, ran) for ended_attempt in attempts if (ran := ended_attempt.ran_s()) is not None]
    if timed_attempts:
        count = f" in {len(timed_attempts)} attempts" if len(timed_attempts) > 1 else ""
        times = "; ".join(
            f"attempt {ended_attempt.number}{_from_step(ended_attempt)}: {duration(ran)}"
            for ended_attempt, ran in timed_attempts
        )
        text = f"{'trained' if run.trains else 'ran'} for {duration(sum(ran for _, ran in timed_attempts))}{count}"
        yield StatusFact(text, "fact soft cut ran", capfirst(times) if count else "")
    if run.archived_at:
        yield StatusFact("archived", "tag")
    if attempt.number > 1 and len(timed_attempts) < 2:
        yield StatusFact(f"attempt {attempt.number}{_from_step(attempt)}", "fact soft")


def _job_facts(job: JobView, summary: Summary, *, failed: bool) -> Iterator[StatusFact]:
    if summary["place"]:
        yield _queue(summary["place"])
    elif not failed:
        yield StatusFact(job.text)
    if job.percent is not None:
        yield StatusFact(f"{job.percent} %")
    if job.merged_model:
        yield StatusFact(
            format_html('<a href="{}">Open the merged model</a>', reverse("model", args=[job.merged_model]))
        )
    if job.pushed_to:
        yield StatusFact(format_html('<a href="{}" rel="noopener">Open it on the hub</a>', job.pushed_to))


def _training_facts(run: Run, summary: Summary, *, failed: bool) -> Iterator[StatusFact]:
    is_running = summary["status"] == RunStatus.RUNNING
    if is_running or (summary["status"] in FINAL and summary["step"]):
        total = (
            format_html(" of <span data-max-steps>{}</span>", sig(summary["max_steps"], 9))
            if summary["max_steps"]
            else ""
        )
        yield StatusFact(format_html("step <strong data-step>{}</strong>{}", sig(summary["step"], 9), total))
        epoch = run.last_metrics.get("epoch")
        yield StatusFact("" if epoch is None else f"epoch {sig(epoch)}", data="data-epoch")
    if is_running:
        pace = summary["step_time"]
        yield StatusFact(f"{duration(pace)}/step" if pace else "", data="data-step-time")
        if not summary["stop_requested"]:
            remaining = summary["eta_s"]
            yield StatusFact(f"about {about(remaining)} left" if remaining else "", data="data-eta")
    elif summary["place"]:
        yield _queue(summary["place"])
    elif not failed:
        yield StatusFact(summary["sentence"], "fact cut", summary["sentence"])


def _queue(position: str) -> StatusFact:
    return StatusFact(format_html('{} in the <a href="{}#queue">queue</a>', position, reverse("hardware")))


def _stop(attempt: Attempt) -> SafeString:
    requester = f" by {attempt.stop_requested_by.username}" if attempt.stop_requested_by else ""
    return format_html(
        "asked to {}{} {} ago", STOPS.get(attempt.stop_mode, ""), requester, ago(attempt.stop_requested_at)
    )


def _from_step(attempt: Attempt) -> str:
    return f", from step {attempt.resume_step}" if attempt.resume_step else ""


def wait_banner(run: Run, attempt: Attempt) -> tuple[str, str] | None:
    """Return the icon and text of the banner of a queued or starting run, or None if it needs no banner."""
    if attempt.status == RunStatus.QUEUED:
        waits = waiting(attempt)
        if waits is None:
            return "clock", "It starts automatically as soon as its resources are free."
        return "clock", format_html(
            "<strong>{}.</strong> {} It starts automatically.", _link_blocker(waits), waits.machine
        )
    if attempt.status == RunStatus.STARTING and run.kind not in jobs.KINDS:
        place = f" on {placement}" if (placement := placement_text(attempt)) else ""
        acceptance = format_html(", accepted {} ago", ago(attempt.claimed_at)) if attempt.claimed_at else ""
        note = (
            "Metrics and charts appear with the first step." if run.trains else "Metrics appear with the first results."
        )
        return "loader", format_html("<strong>Preparing{}{}.</strong> {}", place, acceptance, note)
    return None


def _link_blocker(waits: Waiting) -> str | SafeString:
    opening = waits.before[:1].upper() + waits.before[1:]
    if not waits.run_id:
        return opening
    link = format_html('<a href="{}">{}</a>', reverse("run", args=[waits.run_id]), waits.name)
    return format_html("{}{} ({}){}", opening, link, waits.owner, waits.after)


def resume_texts(resumes: PlannedResume) -> tuple[SafeString, str]:
    number = f" ({resumes.number} of {resumes.of})" if resumes.number else ""
    if resumes.step is None:
        source = "There is no checkpoint, so it starts from the beginning."
    else:
        source = f"It continues from the checkpoint at step {resumes.step}."
    return format_html("Resumes automatically at {}{}.", clock(resumes.at), number), source


def quarantine_of(attempt: Attempt) -> dict[str, Any] | None:
    leases = list(attempt.leases.filter(state=Lease.QUARANTINED).select_related("host").order_by("pk"))
    if not leases:
        return None
    resources = [lease.resource for lease in leases]
    has_several = len(leases) > 1
    title = f"{resource_words(resources)} of {leases[0].host.name} {'are' if has_several else 'is'} in quarantine."
    gpus = any(name.startswith("gpu:") for name in resources)
    text = format_html(
        "{its} release was not confirmed after this run, so nothing starts there. On the host, check what still uses "
        "{they}{how} and stop it; then an operator can release {they}.",
        its="Their" if has_several else "Its",
        they="them" if has_several else "it",
        how=SafeString(" (<code>nvidia-smi</code> names the processes)") if gpus else "",
    )
    return {"title": title, "text": text, "lease_id": leases[0].pk}
