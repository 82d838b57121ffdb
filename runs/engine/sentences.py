"""Sentences of the timeline and the status line."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controlplane.platform.templatetags.figures import duration, size_in_words
from runs.engine.models import Attempt, Priority
from runs.engine.records import RunEvent
from runs.engine.states import FINAL, RunStatus, Waits, sentence
from workers.contract.run.jobs import KINDS
from workers.contract.wire.names import SAVING, EndReason, Phase
from workers.diagnosis import catalogue

ENDED_PHASES = frozenset({Phase.VERIFYING, Phase.UPLOADING})
"""Phases that follow the end of every process of the run."""
PHASES: dict[str, str] = {
    Phase.CLAIMED: "The host accepted the run.",
    Phase.PREPARING: "Preparing the dataset, the folder and the GPU baselines.",
    Phase.FETCHING_MODEL: "Downloading the model.",
    Phase.VLLM_STARTING: "Starting vLLM.",
    Phase.VLLM_READY: "vLLM is ready.",
    Phase.TRAINER_STARTING: "Starting the trainer.",
    Phase.STOPPING: "Stopping every process of the run.",
    Phase.VERIFYING: "Checking that no process of the run is left.",
    Phase.UPLOADING: "Uploading the checkpoint before the host goes.",
}
STATUSES: dict[str, str] = {
    RunStatus.QUEUED: "Waiting for its resources.",
    RunStatus.STARTING: "Starting on its host.",
    RunStatus.RUNNING: "Training.",
    RunStatus.STOPPING: "Stopping every process of the run.",
}
WAIT_WORDS: dict[str, tuple[str, str]] = {
    Waits.HELD: (", held by ", ""),
    Waits.QUARANTINED: (", in quarantine after ", ": it was not proved free"),
    Waits.KEPT: (", reserved for ", ", which is ahead of it in the queue"),
}
"""Way in which another run blocks an attempt -> the words before and after that run's name."""
STOPS = {"save": "save and stop", "now": "stop now"}
TRAINED = {
    "completed": "The trainer reached its last step.",
    "stopped": "The trainer stopped early, as asked.",
    "failed": "The trainer saved and stopped early, because a reward failed on too many rows.",
    "done": "The job is done.",
}
JOB_END_SENTENCES: dict[str, str] = {
    EndReason.COMPLETED: TRAINED["done"],
    EndReason.TRAINER_EXITED: "The process ended before the job was done.",
}
"""Sentences of jobs for end reasons, where they differ from those of training runs."""


@dataclass(frozen=True)
class Waiting:
    """The reason why a queued attempt is waiting: a sentence with a run in the middle to link to."""

    before: str
    run_id: str = ""
    name: str = ""
    owner: str = ""
    after: str = ""
    machine: str = ""
    """Sentences on what it can expect from the machine sources, or ""."""

    def __str__(self) -> str:
        text = f"{self.before}{self.name} ({self.owner}){self.after}" if self.run_id else self.before
        return f"{text}. {self.machine.removesuffix('.')}" if self.machine else text


def counted(number: int, word: str) -> str:
    """Format a count as `1 run` or `2 runs`."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def and_more(names: Sequence[str], total: int) -> str:
    """Join the first names of `total`, as `a, b and 3 more`."""
    return ", ".join(names) + (f" and {total - len(names)} more" if total > len(names) else "")


def waiting(attempt: Attempt) -> Waiting | None:
    """Describe what a queued attempt is waiting for; return None before the first scheduling pass. This makes no query
    if `machine` and `waits_on` with its owner are preloaded."""
    if not attempt.waits_for:
        return None
    expectation = getattr(attempt, "machine", None)
    machine = expectation.text if expectation is not None else ""
    blocker = attempt.waits_on
    if blocker is None or attempt.waits_how not in WAIT_WORDS:
        return Waiting(attempt.waits_for, machine=machine)
    wait = waiting_words(attempt.waits_for, attempt.waits_how, blocker.pk, blocker.name, blocker.owner.get_username())
    return replace(wait, machine=machine)


def waiting_words(wait: str, wait_kind: str, run_id: str, name: str, owner: str) -> Waiting:
    words_before, words_after = WAIT_WORDS[wait_kind]
    return Waiting(wait + words_before, run_id, name, owner, words_after)


def as_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def of_attempt(attempt: Attempt) -> str:
    """Choose the attempt's sentence for the status line."""
    if attempt.status in FINAL:
        if attempt.run.kind in KINDS and attempt.reason in JOB_END_SENTENCES:
            return JOB_END_SENTENCES[attempt.reason]
        if attempt.reason == EndReason.STOPPED_BY_USER and attempt.stop_requested_by:
            return f"Stopped by {attempt.stop_requested_by.get_username()}."
        if attempt.reason == EndReason.TRAINER_EXITED and attempt.run.trains and not attempt.run.step:
            return "The trainer exited before its first step."
        is_limited = attempt.reason in (EndReason.LIMIT_REACHED, EndReason.EARLY_STOPPED) and attempt.detail
        return f"{sentence(attempt.reason).rstrip('.')}: {attempt.detail}" if is_limited else sentence(attempt.reason)
    if attempt.stop_mode and attempt.status != RunStatus.STOPPING:
        return f"Asked to {STOPS.get(attempt.stop_mode, 'stop')}. Waiting for the host."
    if attempt.status == RunStatus.QUEUED and (waiting_for := waiting(attempt)):
        return as_sentence(str(waiting_for))
    if attempt.status == RunStatus.STARTING and attempt.phase == Phase.FETCHING_MODEL:
        return _download(attempt.run.last_metrics)
    if attempt.status == RunStatus.STARTING and attempt.phase in PHASES:
        return PHASES[attempt.phase]
    if attempt.status == RunStatus.STOPPING:
        return stopping(attempt)
    if attempt.status == RunStatus.RUNNING and attempt.run.kind in KINDS:
        return KINDS[attempt.run.kind].working
    return STATUSES.get(attempt.status, f"{attempt.status.capitalize()}.")


def is_saving(attempt: Attempt) -> bool:
    """Return whether the trainer was asked to save and no process has ended yet."""
    return attempt.phase == Phase.STOPPING and attempt.phase_detail == SAVING


def stopping(attempt: Attempt) -> str:
    if is_saving(attempt):
        return "The trainer is saving a checkpoint."
    return PHASES[attempt.phase if attempt.phase in ENDED_PHASES else Phase.STOPPING]


def _download(metrics: dict[str, Any]) -> str:
    mib_done, mib_total = (metrics.get(f"download/{name}_mib") for name in ("done", "total"))
    if not isinstance(mib_done, int | float):
        return PHASES[Phase.FETCHING_MODEL]
    if not isinstance(mib_total, int | float) or mib_total < mib_done:
        return f"Downloading the model, {_gigabytes(mib_done)} GB so far."
    return f"Downloading the model, {_gigabytes(mib_done)} of {_gigabytes(mib_total)} GB."


def _gigabytes(mib: float) -> str:
    """Format MiB as gigabytes, with two decimals for small models."""
    size = mib * 2**20 / 1e9
    return f"{size:.1f}" if size >= 1 or not size else f"{size:.2f}"


def of_event(event: RunEvent) -> str:
    """Describe an event for the timeline, in plain text without markup."""
    describe = _EVENTS.get(event.kind)
    return describe(event.data) if describe else f"{event.kind.replace('_', ' ').capitalize()}."


def _moved_in_queue(data: dict[str, Any]) -> str:
    text = f"Moved in the queue from position {data.get('from')} to position {data.get('to')}."
    return f"{text} {_priority(data)}" if data.get("was") != data.get("priority") else text


def _priority(data: dict[str, Any]) -> str:
    return f"Changed the priority from {_priority_word(data.get('was'))} to {_priority_word(data.get('priority'))}."


def _priority_word(priority: object) -> str:
    return str(Priority(priority).label) if priority in Priority.values else str(priority)


def _status(data: dict[str, Any]) -> str:
    status = str(data.get("to", ""))
    if status in FINAL:
        return _with_detail(f"{status.capitalize()}: {sentence(str(data['reason']))}", data.get("detail"))
    return _with_detail(f"{status.capitalize()}.", data.get("detail"))


def _phase(data: dict[str, Any]) -> str:
    detail = str(data.get("detail") or "")
    reason, _, details = detail.partition(" ")
    if reason in frozenset(EndReason):  # an end reason, before the reason's details are known
        detail = f"{sentence(reason)} {details}".strip()
    return _with_detail(PHASES.get(data.get("phase", ""), "Working."), detail)


def _resumed(data: dict[str, Any]) -> str:
    text = f"Resumed as attempt {data.get('attempt')}, from step {data.get('step')}."
    return f"{text} Automatic resume {data['automatic']} of {data.get('of')}." if "automatic" in data else text


def _planned(data: dict[str, Any]) -> str:
    resumes_at = str(data.get("resumes_at"))[:16].replace("T", " ")
    count = f" ({data['number']} of {data.get('of')})" if data.get("number") else ""
    return f"Will be resumed automatically at {resumes_at} UTC{count}."


def _exited(data: dict[str, Any]) -> str:
    ending = "ended; its exit code is unknown"
    if data.get("signal"):
        ending = f"was ended by {data['signal']}"
    elif data.get("exit_code") is not None:
        ending = f"exited with code {data['exit_code']}"
    return f"The {_role(data)} process {ending} (pid {data.get('pid')})."


def _reward_failed(data: dict[str, Any]) -> str:
    row, count = data.get("row"), data.get("count")
    location = "a batch" if row is None else f"row {row}"
    frequency = "for the first time" if count == 1 else f"now {count} of {data.get('of')} completions"
    return f"The reward {data.get('reward')} failed on {location} ({frequency}): {data.get('message')}"


def _ended(data: dict[str, Any]) -> str:
    receipt = data.get("receipt") or {}
    if not receipt:
        return "The supervisor reported the end."
    if receipt.get("free"):
        seconds = receipt.get("seconds_to_gone") or 0
        return f"All processes were gone within {duration(seconds)}, and all resources are released."
    return "The supervisor reported the end, but couldn't confirm that everything was released."


def _alert(data: dict[str, Any]) -> str:
    if data.get("state") == "closed":
        return f"Resolved: {data.get('title')}."
    return f"{data.get('title')}: {data.get('sentence')}"


def _with_detail(text: str, detail: object) -> str:
    """Append a detail with a capital letter, except to a name such as torch.OutOfMemoryError."""
    addition = str(detail or "")
    if not re.match(r"\w+[./]\w", addition):
        addition = addition[:1].upper() + addition[1:]
    return f"{text} {addition}" if addition else text


def _shared(data: dict[str, Any]) -> str:
    contents = ", with completions" if data.get("completions") else ""
    return f"Shared the run by a link until {str(data.get('until'))[:10]}{contents}."


def _checkpoint(data: dict[str, Any]) -> str:
    """Name the checkpoint that an event is about, or else the whole folder of its attempt."""
    return str(data.get("path")).rpartition("/")[2] or "the run's folder"


def _role(data: dict[str, Any]) -> str:
    """Format a process's name for users: `vllm-2` becomes `vLLM 2`."""
    name, _, number = str(data.get("role")).partition("-")
    return f"{'vLLM' if name == 'vllm' else name} {number}".rstrip()


def _size(count: object) -> str:
    return f" ({size_in_words(count)})" if isinstance(count, int | float) else ""


def _diagnosed(data: dict[str, Any]) -> str:
    """Name the likeliest cause of a failure, by its id if only a newer version has it, and the first error."""
    causes, errors = data.get("diagnoses"), data.get("first_errors")
    likeliest_cause = causes[0] if isinstance(causes, list) and causes else None
    first = errors[0] if isinstance(errors, list) and errors else None
    error = f" First error: {first[0]}:{first[1]}: {first[2]}" if isinstance(first, list) and len(first) == 3 else ""
    if not isinstance(likeliest_cause, dict):
        return f"The logs show no known cause.{error}"
    entry = catalogue.entries().get(str(likeliest_cause.get("id")))
    return f"Likely cause: {entry.title if entry else likeliest_cause.get('id')}.{error}"


_EVENTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "submitted": lambda data: "Launched.",
    "resumed": _resumed,
    "resume_planned": _planned,
    "resume_called_off": lambda data: "Canceled the automatic resume.",
    "deleted": lambda data: f"Deleted the run; it can be restored until {str(data.get('until'))[:10]}.",
    "restored": lambda data: "Restored the run.",
    "renamed": lambda data: f"Renamed the run from “{data.get('from')}” to “{data.get('to')}”.",
    "tagged": lambda data: f"Tags: {', '.join(map(str, data.get('tags') or ['none']))}.",
    "noted": lambda data: "Deleted the notes." if data.get("empty") else "Changed the notes.",
    "shared": _shared,
    "share_revoked": lambda data: "Revoked a link that shared the run.",
    "requested": lambda data: f"Asked to {STOPS.get(str(data.get('mode')), 'stop')}.",
    "queue_moved": _moved_in_queue,
    "priority": _priority,
    "not_launched": lambda data: _with_detail("The host didn't start a supervisor.", data.get("detail")),
    "reap_sent": lambda data: "Asked the host to check whether the supervisor is alive.",
    "reaped": lambda data: _with_detail(
        "The supervisor is still alive." if data.get("lock_held") else "The supervisor is dead.", data.get("detail")
    ),
    "status": _status,
    "phase": _phase,
    "stage": lambda data: f"Trainer: {data.get('stage')}.",
    "training": lambda data: f"Started at step {data.get('step')} of {data.get('max_steps')}.",
    "process_started": lambda data: f"Started the {_role(data)} process (pid {data.get('pid')}).",
    "process_exited": _exited,
    "trained": lambda data: TRAINED.get(str(data.get("how")), "Training ended."),
    "metrics_left_out": lambda data: (
        f"Omitted these metrics, because they are not finite or their names are too long: {data.get('names')}."
    ),
    "checkpoint": lambda data: f"Saved a checkpoint at step {data.get('step')}{_size(data.get('bytes'))}.",
    "deletion_asked": lambda data: f"Asked the host to delete {_checkpoint(data)}.",
    "model_deleted": lambda data: (
        f"{_checkpoint(data)} was deleted. Its files on {data['left_on']}, which is gone, stay there."
        if data.get("left_on")
        else f"The host deleted {_checkpoint(data)}."
    ),
    "model_not_deleted": lambda data: _with_detail(f"{_checkpoint(data)} was not deleted.", data.get("problem")),
    "checkpoint_uploading": lambda data: f"Uploading {_checkpoint(data)} to the artifact store.",
    "checkpoint_stored": lambda data: f"{_checkpoint(data)} is in the artifact store, so any host can resume from it.",
    "checkpoint_not_stored": lambda data: _with_detail(f"{_checkpoint(data)} was not stored.", data.get("problem")),
    "checkpoint_unstored": lambda data: f"{_checkpoint(data)} was removed from the artifact store.",
    "reward_failed": _reward_failed,
    "stop_seen": lambda data: f"The supervisor accepted the request to {STOPS.get(str(data.get('mode')), 'stop')}.",
    "diagnosed": _diagnosed,
    "note": lambda data: str(data.get("text", "")),
    "result": lambda data: str(data.get("text") or "The job is ready."),
    "limit": lambda data: f"The run is saving and will end: {data.get('text')}",
    "hang": lambda data: str(data.get("text", "")),
    "alert": _alert,
    "ended": _ended,
}


def placement_text(attempt: Attempt) -> str:
    """Format a placement as `gpu-1 · GPU 0, 1`. For a queued attempt, return the host that it must run on, or ""."""
    if attempt.host is None:
        return ""
    if attempt.placement is None:
        return attempt.host.name
    gpus = ", ".join(map(str, attempt.gpus))
    return f"{attempt.host.name} · GPU {gpus}" if gpus else f"{attempt.host.name} · CPU"


def resource_words(resources: Iterable[str]) -> str:
    """Format resources for users: `gpu:0`, `gpu:1` and `port:21000` become "GPU 0, 1 and port 21000"."""
    kinds: dict[str, list[int]] = {}
    for resource in resources:
        kind, _, index = resource.partition(":")
        kinds.setdefault({"gpu": "GPU", "cpu": "CPU slot"}.get(kind, kind), []).append(int(index))
    parts = [f"{kind} {', '.join(str(index) for index in sorted(indexes))}" for kind, indexes in sorted(kinds.items())]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
