"""The run page's head: facts, the cause of a failure, and the stop dialogs."""

import re
import signal
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils import timezone

from controlplane.platform.accounts.models import User
from runs.engine import checkpoints, queries, tags
from runs.engine.gain import mean
from runs.engine.gateway import endpoint
from runs.engine.jobs import results as job_results
from runs.engine.models import Attempt, Run
from runs.engine.records import MetricRow
from runs.engine.scheduling import checkpoint_hosts, recovery
from runs.engine.sentences import ENDED_PHASES, counted, is_saving, placement_text, stopping
from runs.engine.spec import why_unreadable
from runs.engine.states import ACTIVE, FINAL, RunStatus
from runs.insight import diagnosis
from runs.insight.health.page import card
from runs.insight.metrics import step_time
from runs.pages.run_page import limits, notes
from runs.pages.run_page.head_facts import quarantine_of, resume_texts, setup_facts, status_facts, wait_banner
from runs.pages.run_page.receipt import receipt_of
from workers.contract.run import evaluation, jobs
from workers.contract.wire.names import LOG_NAMES, EndReason, EventKind, StopMode

ERROR_WORDS = re.compile(r"error|exception|traceback|out of memory|killed|refus|fail|no space", re.IGNORECASE)
HOST_AWAY = "The host is unreachable: the run stops when the host reconnects, and may continue until then."
LAST_LINES = 10
MAX_TITLE_CHARS = 30
"""Maximum length of a name that the page's title shows in full."""
PACE_OVER = 10
_VLLM_REASONS = {EndReason.VLLM_EXITED, EndReason.VLLM_NOT_READY, EndReason.VLLM_HUNG, EndReason.PORT_IN_USE}
_SUPERVISOR_REASONS = {
    EndReason.SUPERVISOR_LOST,
    EndReason.SUPERVISOR_ERROR,
    EndReason.GPUS_BUSY,
    EndReason.DISK_FULL,
    EndReason.FOLDER_LOST,
}
_REPEATING_REASONS = {
    EndReason.REWARD_FAILED,
    EndReason.SPEC_REFUSED,
    EndReason.NO_STEPS,
    EndReason.OOM,
    EndReason.TRAINER_EXITED,
    EndReason.DISK_FULL,
}
"""Failures that are likely to recur in a resumed attempt."""
RUNNING = {evaluation.EVALUATION: "Evaluating", "check": "Sampling"}
"""Labels of the status "running" for kinds of runs that don't train."""
ARCHIVE = {"route": "archive_several", "icon": "archive", "act": "Archive"}
UNARCHIVE = {"route": "unarchive_several", "icon": "archive-restore", "act": "Unarchive"}


def head(run: Run, user: User) -> dict[str, Any]:
    """Build the context of the parts that change with the run's state. The page's socket only triggers their reload."""
    attempt = run.latest()
    summary = _with_steady_pace(queries.summary(run))
    final = attempt.status in FINAL
    problem = why_unreadable(run)
    job = job_results.view(run) if run.kind in jobs.KINDS else None
    resumes = recovery.planned_resume(run, attempt)
    stop_effect = stop_follows(attempt, away=summary["out_of_reach_since"] is not None)
    is_running = attempt.status == RunStatus.RUNNING
    return {
        "attempt": attempt,
        "s": summary,
        "status_word": RUNNING.get(run.kind, "Running") if is_running else attempt.status.capitalize(),
        "status_facts": list(status_facts(run, attempt, summary, job=job, stop_effect=stop_effect)),
        "wait_banner": wait_banner(run, attempt),
        **about(run, user),
        "live": attempt.status in ACTIVE,
        "final": final,
        "job": job,
        "unreadable": problem,
        "out_of_reach": datetime.fromisoformat(silent) if (silent := summary["out_of_reach_since"]) else None,
        "cause": cause(attempt) if attempt.status == RunStatus.FAILED else None,
        "receipt": receipt_of(attempt) if final else None,
        "health": card(run),
        "step_time": step_time.of_run(run),
        "limits": limits.bars(run, attempt),
        "gateway": endpoint.of(run),
        "quarantined": quarantine_of(attempt) if final else None,
        "stops": stops(run, attempt) if attempt.status in ACTIVE and user.may_operate else [],
        "resumes": resumes,
        "resume_texts": resume_texts(resumes) if resumes else None,
        "repeats": attempt.reason in _REPEATING_REASONS,
        "reward_failed": attempt.reason == EndReason.REWARD_FAILED,
        "reward_editor": _reward_editor(run) if user.may_operate else "",
        "archiving": UNARCHIVE if run.archived_at else ARCHIVE,
        "full_name": run.name if len(run.name) > MAX_TITLE_CHARS else "",
        "resume_step": _resume_step(run) if final and user.may_operate and not problem else None,
    }


def about(run: Run, user: User) -> dict[str, Any]:
    return {
        "run": run,
        "makings": setup_facts(run),
        "noted": notes.last_change(run),
        "edition": notes.edition(run.notes),
        "longest": notes.MAX_CHARS,
        "longest_tag": tags.MAX_TAG_CHARS,
        "notes_html": notes.as_html(run.notes),
        "note_begins": notes.beginning(run.notes),
        "draft": None,
        "may_operate": user.may_operate,
    }


def _with_steady_pace(summary: queries.Summary) -> queries.Summary:
    """Return the summary with step time and remaining time computed from the mean of the last steps, as in the page's
    script. Single steps would make them jump, since steps that reuse a batch are several times faster than steps that
    generate."""
    if summary["status"] != RunStatus.RUNNING:
        return summary
    rows = MetricRow.objects.filter(run=summary["id"], kind=EventKind.TRAIN, superseded=False)
    steps = rows.filter(values__step_time__isnull=False).order_by("-seq")
    times = [t for t in steps.values_list("values__step_time", flat=True)[:PACE_OVER] if isinstance(t, int | float)]
    if not times:
        return summary
    pace = mean(times)
    steps_left = None if summary["max_steps"] is None else max(0, summary["max_steps"] - summary["step"])
    return {**summary, "step_time": pace, "eta_s": None if steps_left is None else pace * steps_left}


def cause(attempt: Attempt) -> dict[str, Any]:
    reason = attempt.reason
    first_log = "vllm" if reason in _VLLM_REASONS else "supervisor" if reason in _SUPERVISOR_REASONS else "trainer"
    order = sorted(LOG_NAMES, key=lambda name: name != first_log)
    name, lines = next(((name, lines) for name in order if (lines := last_lines(attempt, name))), ("", []))
    return {
        "sentence": queries.summary(attempt.run)["sentence"] if reason else "The run failed.",
        "detail": attempt.detail,
        "unknown": "Nothing more is known about this failure." if attempt.detail else "The cause is unknown.",
        "log": name,
        "lines": lines,
        "exit_codes": {role: _exit_text(code) for role, code in attempt.exit_codes.items()},
        "diagnosis": diagnosis.of_attempt(attempt),
    }


def _exit_text(code: Any) -> str:
    """Return an exit code as a string, with the signal's name if the code is 128 + signal."""
    try:
        return f"{code} ({signal.Signals(code - 128).name})"
    except (TypeError, ValueError):
        return str(code)


def last_lines(attempt: Attempt, name: str) -> list[tuple[str, str]]:
    """Return the log's last lines as (text, css class); lines with errors are highlighted."""
    text = queries.log(attempt, name, offset=-16 * 1024).data.decode("utf-8", "replace")
    lines = [line.rsplit("\r", 1)[-1].rstrip() for line in text.splitlines()]
    # Lines with step metrics are no errors, though they contain names such as rewards/right/failed.
    is_error = [not line.startswith("{'") and bool(ERROR_WORDS.search(line)) for line in lines]
    rows = [(line[:400], "telling" if error else "") for line, error in zip(lines, is_error, strict=True) if line]
    return rows[-LAST_LINES:]


def stops(run: Run, attempt: Attempt) -> list[dict[str, Any]]:
    if attempt.status == RunStatus.QUEUED:
        text = "The run is removed from the queue. It has not started, so nothing is lost."
        return [
            _dialog(StopMode.NOW, "Remove from queue", f"Remove “{run.name}” from the queue?", [text], danger=False)
        ]
    if attempt.phase in ENDED_PHASES:
        return []
    location = placement_text(attempt) or "its host"
    closing_lines = [
        f"All of its processes on {location} are terminated.",
        "A receipt confirms that they have exited and that their resources are released.",
    ]
    if queries.out_of_reach_since(attempt, timezone.now()):
        closing_lines.append(HOST_AWAY)
    dialogs = []
    if run.trains and attempt.stop_mode != StopMode.SAVE and attempt.status != RunStatus.STOPPING:
        text = "Finishes the current step, saves a checkpoint, then stops (up to 2 minutes)."
        title = f"Save and stop “{run.name}”?"
        dialogs.append(_dialog(StopMode.SAVE, "Save and stop", title, [text, *closing_lines], danger=False))
    if jobs.kind_of(run.kind).pushes and attempt.stop_mode == "" and attempt.status != RunStatus.STOPPING:
        text = "The upload ends. A repository that this push has created is deleted; an existing one is not changed."
        return [_dialog(StopMode.SAVE, "Stop", f"Stop “{run.name}”?", [text, *closing_lines])]
    if attempt.stop_mode == StopMode.SAVE and jobs.kind_of(run.kind).pushes:
        text = "A repository that this push has created may remain on the hub, empty."
        return [_dialog(StopMode.NOW, "Stop now instead", f"Stop “{run.name}” now?", [text, *closing_lines])]
    if attempt.stop_mode == StopMode.SAVE:
        losses = ["The requested checkpoint is abandoned.", _lost_work(run)]
        dialogs.append(
            _dialog(StopMode.NOW, "Stop now instead", f"Stop “{run.name}” now instead?", [*losses, *closing_lines])
        )
    elif attempt.stop_mode != StopMode.NOW:
        dialogs.append(_dialog(StopMode.NOW, "Stop now", f"Stop “{run.name}” now?", [_lost_work(run), *closing_lines]))
    return dialogs


def _dialog(mode: str, act: str, title: str, consequences: list[str], *, danger: bool = True) -> dict[str, Any]:
    icon, css = ("octagon-x", "danger") if danger else ("save", "")
    dialog = {"mode": mode, "act": act, "title": title, "consequences": consequences}
    return {**dialog, "danger": danger, "icon": icon, "css": css}


def stop_follows(attempt: Attempt, *, away: bool) -> str:
    if away:
        return HOST_AWAY
    if attempt.status == RunStatus.STOPPING:
        return f"{stopping(attempt)} It has two minutes for this." if is_saving(attempt) else stopping(attempt)
    if attempt.claimed_at is None:
        return "The host had not accepted the run yet, and now it won't."
    return "The host stops the run at its next check-in."


def _lost_work(run: Run) -> str:
    if run.kind in jobs.KINDS:
        return jobs.KINDS[run.kind].stopped
    if not run.trains:
        return "Completions that have arrived are kept; the others are not sampled."
    last_saved = checkpoints.last(run)
    if last_saved is None and run.step:
        return f"Nothing is saved: there is no checkpoint yet, so all {run.step} steps are lost."
    if last_saved is None:
        return "Nothing is saved: no step has been trained yet."
    lost_steps = run.step - last_saved.step
    steps = (
        f", so {counted(lost_steps, 'step')} of training {'is' if lost_steps == 1 else 'are'} lost"
        if lost_steps > 0
        else ""
    )
    return f"The step in progress is lost. The last checkpoint is from step {last_saved.step}{steps}."


def _reward_editor(run: Run) -> str:
    """Return the address of the run's reward config, ready to replay the run, or "" if it is archived or deleted."""
    version = run.reward_version
    if version is None or version.config.archived_at is not None or version.config.deleted_at is not None:
        return ""
    return f"{reverse('reward_config', args=[version.config_id])}?replay={run.pk}"


def _resume_step(run: Run) -> int | None:
    checkpoint = checkpoint_hosts.resume_point(run) if run.trains else None
    return checkpoint.step if checkpoint and checkpoints.has_steps_after(run, checkpoint.step) else None
