"""A run's checkpoints: those that were saved, and those that still exist. scheduling.checkpoint_hosts chooses the one
to resume from."""

from collections.abc import Collection
from dataclasses import dataclass

from controlplane.catalogue.hardware.models import Host
from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent
from workers.contract.run.jobs import MERGE
from workers.contract.wire.names import EndReason, EventKind, StopMode

MAX_SHOWN = 300
"""The newest checkpoints of a run to look at; the events tab has all of them."""

DELETION_ASKED, DELETED, NOT_DELETED = "deletion_asked", "model_deleted", "model_not_deleted"
"""Kinds of RunEvent, written by runs.engine.deletions; data: {"path"}. A checkpoint's last one applies."""

UPLOADING, STORED, NOT_STORED, UNSTORED = (
    "checkpoint_uploading",
    "checkpoint_stored",
    "checkpoint_not_stored",
    "checkpoint_unstored",
)
"""Kinds of RunEvent, written by artifacts.copies; data: {"path", "manifest" or "problem"}. The last one applies."""

FOLDER_PARTS = 4
"""Number of parts in a checkpoint folder's path: run/attempt/checkpoints/checkpoint-N."""


@dataclass(frozen=True)
class Checkpoint:
    event: RunEvent
    superseded: bool
    """A later attempt resumed from an earlier step."""
    removed: bool
    """The trainer has deleted it since."""
    unusable: bool
    """A host refused to resume from it."""
    deletion: RunEvent | None = None
    storage: RunEvent | None = None
    """The newest event about its copy in the artifact store."""

    @property
    def stored(self) -> bool:
        """True if its copy in the store is complete, so that any host may use it."""
        return self.storage is not None and self.storage.kind == STORED

    @property
    def in_store(self) -> bool:
        """True if the store may hold it, in part or whole."""
        return self.storage is not None and self.storage.kind != UNSTORED

    @property
    def manifest(self) -> str:
        """The SHA-256 of its manifest in the store; empty: it isn't there."""
        return str(self.storage.data.get("manifest", "")) if self.storage is not None and self.stored else ""

    @property
    def run(self) -> Run:
        return self.event.run

    @property
    def is_adapter(self) -> bool:
        """True if it holds a LoRA adapter; otherwise it holds all weights."""
        return self.run.kind != MERGE and bool(self.run.spec.get("lora"))

    @property
    def kind(self) -> str:
        return "Merged model" if self.run.kind == MERGE else "Adapter" if self.is_adapter else "All weights"

    @property
    def step(self) -> int:
        return int(self.event.data["step"])

    @property
    def name(self) -> str:
        """The name for people, such as `sums · step 200`."""
        if self.run.kind == MERGE and self.run.source is not None:
            return f"{self.run.source.name} · step {self.step} · merged"
        return f"{self.run.name} · step {self.step}"

    @property
    def folder(self) -> str:
        """Relative to the host's RUNS_DIR."""
        return _folder_of(self.event)

    @property
    def path(self) -> str:
        """Its path on its host; empty if the host has not announced its RUNS_DIR."""
        return self.path_on(self.event.attempt.host)

    def path_on(self, host: Host | None) -> str:
        """Build its path on a host, which may still have to fetch it from the store; empty if RUNS_DIR is unknown."""
        runs_dir = host.inventory.get("runs_dir") if host else ""
        return f"{runs_dir}/{self.folder}" if runs_dir else ""

    @property
    def going(self) -> bool:
        """True if its deletion was requested and the host has not answered yet."""
        return self.deletion is not None and self.deletion.kind == DELETION_ASKED

    @property
    def usable(self) -> bool:
        return not (self.superseded or self.removed or self.unusable or self.going)


def of_run(run: Run) -> list[Checkpoint]:
    """List a run's newest checkpoints, at most MAX_SHOWN, newest first."""
    saved = RunEvent.objects.filter(run=run, kind=EventKind.CHECKPOINT).select_related("attempt__host")
    newest = list(saved.order_by("-seq")[:MAX_SHOWN])
    if not newest:
        return []
    for event in newest:
        event.run = run
    existing = _existing(run, newest)
    deletions = _newest_events(run, DELETION_ASKED, DELETED, NOT_DELETED)
    storages = _newest_events(run, UPLOADING, STORED, NOT_STORED, UNSTORED)
    attempts = run.attempts.values_list("number", "started_at", "reason", "resume_from", "resume_step")
    resumes = [(number, step) for number, started, _, _, step in attempts if number > 1 and started]
    refused = {folder for _, _, reason, folder, _ in attempts if reason == EndReason.CHECKPOINT_UNUSABLE}
    rows = []
    for event in newest:
        key, number, step = (event.attempt_id, event.data["path"]), event.attempt.number, int(event.data["step"])
        superseded = any(number < later and step > resume_step for later, resume_step in resumes)
        deletion = deletions.get(key)
        removed = event.pk not in existing or (deletion is not None and deletion.kind == DELETED)
        rows.append(Checkpoint(event, superseded, removed, _folder_of(event) in refused, deletion, storages.get(key)))
    return rows


def models_of(run: Run) -> list[Checkpoint]:
    """List the run's own checkpoints that still exist, then the merged models made of them."""
    merges = run.jobs.filter(kind=MERGE).order_by("-created_at")
    return [checkpoint for source in (run, *merges) for checkpoint in of_run(source) if checkpoint.usable]


def last(run: Run) -> Checkpoint | None:
    """Find the newest checkpoint from which the run can be resumed."""
    return next((checkpoint for checkpoint in of_run(run) if checkpoint.usable), None)


def saved_on_request(attempt: Attempt) -> int | None:
    """Find the step of the last checkpoint of an attempt with a request to save and stop. None without such a request
    or checkpoint."""
    if attempt.stop_mode != StopMode.SAVE:
        return None
    event = attempt.events.filter(kind=EventKind.CHECKPOINT).order_by("-pk").first()
    return int(event.data["step"]) if event else None


def find(run: Run, event_id: str) -> Checkpoint | None:
    return next((checkpoint for checkpoint in of_run(run) if str(checkpoint.event.pk) == event_id), None)


def by_folder(folder: str) -> Checkpoint | None:
    """Find the checkpoint in a folder, given as a path on a host or relative to RUNS_DIR."""
    folder = folder_in(folder)
    run = Run.every.filter(pk=folder.partition("/")[0]).first()
    return next((checkpoint for checkpoint in of_run(run) if checkpoint.folder == folder), None) if run else None


def folder_in(path: str) -> str:
    """Cut a checkpoint's folder, relative to RUNS_DIR, out of its path on a host."""
    return "/".join(path.rstrip("/").split("/")[-FOLDER_PARTS:])


def trains_on(run: Run, step: int) -> bool:
    """Check whether the run has steps to train after this one."""
    return run.max_steps is None or step < run.max_steps


def _folder_of(event: RunEvent) -> str:
    return f"{event.run_id}/{event.attempt.number}/{event.data['path']}"


def _newest_events(run: Run, *kinds: str) -> dict[tuple[str, str], RunEvent]:
    """Find the newest event of these kinds about each checkpoint, by attempt and path."""
    events = RunEvent.objects.filter(run=run, kind__in=kinds).order_by("id")
    return {(event.attempt_id, event.data["path"]): event for event in events}


def _existing(run: Run, newest: Collection[RunEvent]) -> set[int]:
    """Find the events, by id, whose checkpoints the trainer still keeps, as each attempt's newest event names them.
    Earlier trainers name none: they keep the newest few."""
    limit = (run.spec.get("grpo") or {}).get("save_total_limit")
    of_attempt: dict[str, list[RunEvent]] = {}
    for event in newest:
        of_attempt.setdefault(event.attempt_id, []).append(event)
    existing: set[int] = set()
    for events in of_attempt.values():
        steps = events[0].data.get("kept")
        kept_events = events[: limit or None]
        if isinstance(steps, list):
            kept_events = [event for event in events if event.data["step"] in steps]
        existing |= {event.pk for event in kept_events}
    return existing
