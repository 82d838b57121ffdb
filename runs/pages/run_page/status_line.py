"""The facts beside a run's status: how far it is, a stop under way, and how long it ran."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.platform.templatetags.figures import about, ago, duration, sig
from runs.engine.jobs.results import JobView
from runs.engine.models import Attempt, Run
from runs.engine.queries import Summary
from runs.engine.sentences import STOPS
from runs.engine.states import ACTIVE, FINAL, RunStatus


@dataclass(frozen=True)
class StatusFact:
    text: str | SafeString
    css: str = "fact"
    title: str = ""
    data: str = ""
    """The attribute by which the page's script finds it."""
    role: str = ""


@dataclass(frozen=True)
class RunningTime:
    """How long a run ran, over all its attempts."""

    seconds: float
    attempts: list[str]
    """Each attempt in words; empty if there was one."""


def running_time(run: Run) -> RunningTime | None:
    timed = [(attempt, ran) for attempt in run.attempts.all() if (ran := attempt.ran_s()) is not None]
    if not timed:
        return None
    words = [
        f"attempt {attempt.number}{_from_step(attempt)}: {duration(ran)}"
        for attempt, ran in sorted(timed, key=lambda pair: pair[0].number)
    ]
    return RunningTime(sum(ran for _, ran in timed), words if len(words) > 1 else [])


def status_facts(
    run: Run, attempt: Attempt, summary: Summary, *, job: JobView | None, stop_effect: str
) -> Iterator[StatusFact]:
    failed = attempt.status == RunStatus.FAILED
    yield from _of_job(job, summary, failed=failed) if job else _of_training(run, summary, failed=failed)
    if summary["stop_requested"] and attempt.status in ACTIVE and attempt.status != RunStatus.QUEUED:
        yield StatusFact(_stop(attempt), "fact stopping warn cut", stop_effect, role="status")
    if summary["phase_detail"] and attempt.status == RunStatus.STARTING:
        yield StatusFact(summary["phase_detail"], "fact soft cut", summary["phase_detail"])
    ran = running_time(run) if attempt.status in FINAL else None
    if ran:
        count = f" in {len(ran.attempts)} attempts" if ran.attempts else ""
        times = "; ".join(ran.attempts)
        words = f"{'trained' if run.trains else 'ran'} for {duration(ran.seconds)}{count}"
        yield StatusFact(words, "fact soft cut ran", times[:1].upper() + times[1:])
    if run.archived_at:
        yield StatusFact("archived", "tag")
    if attempt.number > 1 and not (ran and ran.attempts):
        yield StatusFact(f"attempt {attempt.number}{_from_step(attempt)}", "fact soft")


def _of_job(job: JobView, summary: Summary, *, failed: bool) -> Iterator[StatusFact]:
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


def _of_training(run: Run, summary: Summary, *, failed: bool) -> Iterator[StatusFact]:
    running = summary["status"] == RunStatus.RUNNING
    if running or (summary["status"] in FINAL and summary["step"]):
        of = (
            format_html(" of <span data-max-steps>{}</span>", sig(summary["max_steps"], 9))
            if summary["max_steps"]
            else ""
        )
        yield StatusFact(format_html("step <strong data-step>{}</strong>{}", sig(summary["step"], 9), of))
        epoch = run.last_metrics.get("epoch")
        yield StatusFact("" if epoch is None else f"epoch {sig(epoch)}", data="data-epoch")
    if running:
        pace = summary["step_time"]
        yield StatusFact(f"{duration(pace)}/step" if pace else "", data="data-step-time")
        if not summary["stop_requested"]:
            left = summary["eta_s"]
            yield StatusFact(f"about {about(left)} left" if left else "", data="data-eta")
    elif summary["place"]:
        yield _queue(summary["place"])
    elif not failed:
        yield StatusFact(summary["sentence"], "fact cut", summary["sentence"])


def _queue(place: str) -> StatusFact:
    return StatusFact(format_html('{} in the <a href="{}#queue">queue</a>', place, reverse("hardware")))


def _stop(attempt: Attempt) -> SafeString:
    by = f" by {attempt.stop_requested_by.username}" if attempt.stop_requested_by else ""
    return format_html("asked to {}{} {} ago", STOPS.get(attempt.stop_mode, ""), by, ago(attempt.stop_requested_at))


def _from_step(attempt: Attempt) -> str:
    return f", from step {attempt.resume_step}" if attempt.resume_step else ""
