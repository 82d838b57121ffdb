"""A run's checkpoints: which were saved, and which still exist (checkpoint_hosts chooses one for a resume)."""

from collections.abc import Collection
from dataclasses import dataclass

from controlplane.catalogue.hardware.models import Host
from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent
from workers.contract.run.jobs import MERGE
from workers.contract.wire.names import EndReason, EventKind, StopMode

MAX_SHOWN = 300
"""Upper bound of the checkpoints listed for a run, newest first; the events tab has all of them."""

DELETION_ASKED, DELETED, NOT_DELETED = "deletion_asked", "model_deleted", "model_not_deleted"
"""Kinds of RunEvent from runs.engine.deletions, with data such as {"path"}. A checkpoint's newest one applies."""

UPLOADING, STORED, NOT_STORED, UNSTORED = (
    "checkpoint_uploading",
    "checkpoint_stored",
    "checkpoint_not_stored",
    "checkpoint_unstored",
)
"""Kinds of RunEvent from artifacts.copies, with {"path"} and a "manifest" or "problem". The newest one applies."""

FOLDER_PARTS = 4
"""Number of parts in a checkpoint folder's path: run/attempt/checkpoints/checkpoint-N."""


@dataclass(frozen=True)
class Checkpoint:
    event: RunEvent
    superseded: bool
    """True if a later attempt resumed from an earlier step."""
    removed: bool
    """True if the trainer or a host deleted it, or somebody deleted it after its host was lost."""
    unusable: bool
    """True if a host refused to resume from it."""
    deletion: RunEvent | None = None
    storage: RunEvent | None = None
    """The newest event about the checkpoint's copy in the artifact store."""

    @property
    def stored(self) -> bool:
        """True if the store has a complete copy, so that any host may use the checkpoint."""
        return self.storage is not None and self.storage.kind == STORED

    @property
    def in_store(self) -> bool:
        """True if the store may hold a copy, in part or whole."""
        return self.storage is not None and self.storage.kind != UNSTORED

    @property
    def manifest(self) -> str:
        """The SHA-256 of its manifest in the store, or "" if the store has no complete copy."""
        return str(self.storage.data.get("manifest", "")) if self.storage is not None and self.stored else ""

    @property
    def run(self) -> Run:
        return self.event.run

    @property
    def is_adapter(self) -> bool:
        return self.run.kind != MERGE and bool(self.run.spec.get("lora"))

    @property
    def kind(self) -> str:
        return "Merged model" if self.run.kind == MERGE else "Adapter" if self.is_adapter else "All weights"

    @property
    def step(self) -> int:
        return int(self.event.data["step"])

    @property
    def name(self) -> str:
        """The displayed name, such as `sums · step 200`."""
        if self.run.kind == MERGE and self.run.source is not None:
            return f"{self.run.source.name} · step {self.step} · merged"
        return f"{self.run.name} · step {self.step}"

    @property
    def folder(self) -> str:
        """The folder, relative to the host's RUNS_DIR."""
        return _folder_of(self.event)

    @property
    def path(self) -> str:
        """Its path on its host, or "" if the host has not announced its RUNS_DIR."""
        return self.path_on(self.event.attempt.host)

    def path_on(self, host: Host | None) -> str:
        """Build its path on a host, which may not have it yet; return "" if the host's RUNS_DIR is unknown."""
        runs_dir = host.inventory.get("runs_dir") if host else ""
        return f"{runs_dir}/{self.folder}" if runs_dir else ""

    @property
    def is_being_deleted(self) -> bool:
        """True if its deletion was requested and the host has not reported the result yet."""
        return self.deletion is not None and self.deletion.kind == DELETION_ASKED

    @property
    def usable(self) -> bool:
        return not (self.superseded or self.removed or self.unusable or self.is_being_deleted)


def of_run(run: Run) -> list[Checkpoint]:
    """List a run's newest checkpoints, at most MAX_SHOWN, newest first."""
    checkpoint_events = RunEvent.objects.filter(run=run, kind=EventKind.CHECKPOINT).select_related("attempt__host")
    newest_events = list(checkpoint_events.order_by("-seq")[:MAX_SHOWN])
    if not newest_events:
        return []
    for event in newest_events:
        event.run = run
    existing_ids = _remaining_event_ids(run, newest_events)
    deletions = _newest_events(run, DELETION_ASKED, DELETED, NOT_DELETED)
    store_events = _newest_events(run, UPLOADING, STORED, NOT_STORED, UNSTORED)
    attempts = run.attempts.values_list("number", "started_at", "reason", "resume_from", "resume_step")
    resumes = [(number, step) for number, started, _, _, step in attempts if number > 1 and started]
    refused_folders = {folder for _, _, reason, folder, _ in attempts if reason == EndReason.CHECKPOINT_UNUSABLE}
    rows = []
    for event in newest_events:
        key, number, step = (event.attempt_id, event.data["path"]), event.attempt.number, int(event.data["step"])
        is_superseded = any(number < later_number and step > resume_step for later_number, resume_step in resumes)
        deletion = deletions.get(key)
        is_removed = event.pk not in existing_ids or (deletion is not None and deletion.kind == DELETED)
        rows.append(
            Checkpoint(
                event, is_superseded, is_removed, _folder_of(event) in refused_folders, deletion, store_events.get(key)
            )
        )
    return rows


def models_of(run: Run) -> list[Checkpoint]:
    """List the run's usable checkpoints, then the usable models of its merges."""
    merges = run.jobs.filter(kind=MERGE).order_by("-created_at")
    return [checkpoint for source in (run, *merges) for checkpoint in of_run(source) if checkpoint.usable]


def last(run: Run) -> Checkpoint | None:
    """Find the newest checkpoint from which the run can be resumed; return None if there is none."""
    return next((checkpoint for checkpoint in of_run(run) if checkpoint.usable), None)


def saved_on_request(attempt: Attempt) -> int | None:
    """Return the step of the attempt's last checkpoint if somebody asked the attempt to save and stop. Return None
    without such a request or without a checkpoint."""
    if attempt.stop_mode != StopMode.SAVE:
        return None
    event = attempt.events.filter(kind=EventKind.CHECKPOINT).order_by("-pk").first()
    return int(event.data["step"]) if event else None


def find(run: Run, event_id: str) -> Checkpoint | None:
    return next((checkpoint for checkpoint in of_run(run) if str(checkpoint.event.pk) == event_id), None)


def by_folder(folder: str) -> Checkpoint | None:
    """Find the checkpoint in a folder, which may be given as a path on a host or relative to RUNS_DIR."""
    folder = folder_in(folder)
    run = Run.every.filter(pk=folder.partition("/")[0]).first()
    return next((checkpoint for checkpoint in of_run(run) if checkpoint.folder == folder), None) if run else None


def folder_in(path: str) -> str:
    """Extract a checkpoint's folder, relative to RUNS_DIR, from its path on a host."""
    return "/".join(path.rstrip("/").split("/")[-FOLDER_PARTS:])


def has_steps_after(run: Run, step: int) -> bool:
    return run.max_steps is None or step < run.max_steps


def _folder_of(event: RunEvent) -> str:
    return f"{event.run_id}/{event.attempt.number}/{event.data['path']}"


def _newest_events(run: Run, *kinds: str) -> dict[tuple[str, str], RunEvent]:
    """Map each checkpoint, by attempt and path, to its newest event of these kinds."""
    events = RunEvent.objects.filter(run=run, kind__in=kinds).order_by("id")
    return {(event.attempt_id, event.data["path"]): event for event in events}


def _remaining_event_ids(run: Run, newest: Collection[RunEvent]) -> set[int]:
    """Return the ids of the events whose checkpoints the trainer still keeps, as each attempt's newest event lists
    them. Older trainers list none; they keep the newest `save_total_limit`."""
    limit = (run.spec.get("grpo") or {}).get("save_total_limit")
    by_attempt: dict[str, list[RunEvent]] = {}
    for event in newest:
        by_attempt.setdefault(event.attempt_id, []).append(event)
    existing_ids: set[int] = set()
    for events in by_attempt.values():
        steps = events[0].data.get("kept")
        kept_events = events[: limit or None]
        if isinstance(steps, list):
            kept_events = [event for event in events if event.data["step"] in steps]
        existing_ids |= {event.pk for event in kept_events}
    return existing_ids
