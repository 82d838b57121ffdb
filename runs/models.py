"""The rows of runs and attempts. No side effects: flows live in the modules named after them."""

from __future__ import annotations

import secrets
import time
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from runs.states import EndReason, RunStatus, Waits
from workers.contract import EventKind, StopMode

_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def new_run_id() -> str:
    """A short random id for folders and URLs. Starts with a letter and avoids look-alikes (i, l, o, 0, 1)."""
    return "r" + "".join(secrets.choice(_ALPHABET) for _ in range(9))


class Run(models.Model):
    """A run as people launch and view it. Status, reason, lease and receipt are those of its latest attempt."""

    id = models.CharField(primary_key=True, max_length=16, default=new_run_id, editable=False)
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=16, default="train")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="runs")
    created_at = models.DateTimeField(auto_now_add=True)
    spec = models.JSONField()
    """workers.contract.RunSpec, frozen at submit."""
    host = models.ForeignKey("hardware.Host", null=True, blank=True, on_delete=models.SET_NULL)
    """The host requested at launch; None: any host that fits."""
    dataset_version = models.ForeignKey("datasets.DatasetVersion", on_delete=models.PROTECT, related_name="runs")
    reward_version = models.ForeignKey("rewards.RewardVersion", models.SET_NULL, related_name="runs", null=True)
    eval_reward_version = models.ForeignKey("rewards.RewardVersion", models.SET_NULL, related_name="+", null=True)
    environment_version = models.ForeignKey("environments.EnvironmentVersion", models.SET_NULL, "runs", null=True)
    profile = models.ForeignKey("hardware.HardwareProfile", null=True, on_delete=models.SET_NULL)
    last_seq = models.BigIntegerField(default=0)
    """The highest stored seq; written only by ingest."""
    step = models.IntegerField(default=0)
    max_steps = models.IntegerField(null=True)
    last_metrics = models.JSONField(default=dict)
    """The newest value of each metric, for lists and headlines; written only by ingest."""
    launch_key = models.CharField(max_length=64, null=True, unique=True)  # noqa: DJ001
    """Identifies the submitted page, so that a second click finds the run of the first. NULL: no page."""
    trial = models.ForeignKey("ProfileTrial", null=True, on_delete=models.SET_NULL, related_name="runs")
    """For runs of kind `trial`: the trial they belong to."""
    source = models.ForeignKey("self", null=True, on_delete=models.CASCADE, related_name="jobs")
    """For evaluations and jobs: the run whose model or checkpoint they use."""
    folded_seq = models.BigIntegerField(default=0)
    """Metric rows up to this seq are in chunks; written only by folding."""
    tags = models.JSONField(default=list)
    """Tags, without duplicates, in alphabetical order."""
    notes = models.TextField(blank=True)
    archived_at = models.DateTimeField(null=True)
    """Archived: listed only on request."""
    trend = models.JSONField(default=list)
    trend_of = models.IntegerField(default=0)
    reward_ends = models.JSONField(default=list)
    """The reward in at most 40 points, the number of rewards behind them, and the first and the last ten rewards."""
    preset = models.ForeignKey("HealthPreset", null=True, on_delete=models.SET_NULL)
    """The health bounds; None: those of the default preset."""
    health = models.JSONField(default=dict)
    """The last assessment (see runs.health.assess); written only by runs.health. {}: none yet."""

    class Meta:
        ordering = ("-created_at",)
        indexes = [
            models.Index(fields=["-created_at"], name="run_newest"),
            models.Index(fields=["archived_at", "-created_at", "kind", "id"], name="run_listed"),  # not the wide rows
            models.Index(fields=["tags"], name="run_tags"),  # whole lists; PostgreSQL has each tag in run_tag, too
            models.Index(Lower("name"), models.F("created_at").desc(), "id", name="run_by_name"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def trains(self) -> bool:
        """Not a trial, a check, an evaluation or a job."""
        return self.kind == "train"

    def latest(self) -> Attempt:
        """The attempt whose status, reason, lease and receipt the run shows; no query if attempts are prefetched."""
        return max(self.attempts.all(), key=lambda attempt: attempt.number)


class ProfileTrial(models.Model):
    """A trial of hardware profiles for a model on a host: two steps of each candidate, as runs of kind `trial`."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT)
    host = models.ForeignKey("hardware.Host", null=True, on_delete=models.SET_NULL)
    model = models.CharField(max_length=500)
    dataset_version = models.ForeignKey("datasets.DatasetVersion", null=True, on_delete=models.SET_NULL)
    reward_version = models.ForeignKey("rewards.RewardVersion", models.SET_NULL, related_name="+", null=True)
    refused = models.JSONField(default=list)
    """Candidates that were not launched: [{"profile": id, "name": str, "why": str, "fits": False or None}]."""
    launch_key = models.CharField(max_length=64, null=True, unique=True)  # noqa: DJ001
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-created_at",)

    def candidates(self) -> int:
        """The number of candidates; no query if the runs are prefetched."""
        return len(self.runs.all()) + len(self.refused)


class Priority(models.IntegerChoices):
    JOB = -2, "lowest"
    LOW = -1, "low"
    NORMAL = 0, "normal"
    HIGH = 1, "high"


class Attempt(models.Model):
    """One life of a run on a host: folder, lease, processes, receipt."""

    id = models.CharField(primary_key=True, max_length=24, editable=False)
    """<run id>-<number>"""
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="attempts")
    number = models.IntegerField()
    status = models.CharField(max_length=12, choices=[(s, s) for s in RunStatus], default=RunStatus.QUEUED)
    reason = models.CharField(max_length=24, blank=True, choices=[(r, r) for r in EndReason])
    detail = models.TextField(blank=True)
    """Details in words, in addition to the reason's own sentence."""
    host = models.ForeignKey("hardware.Host", null=True, on_delete=models.PROTECT)
    placement = models.JSONField(null=True)
    first_seq = models.BigIntegerField(null=True)
    last_seq = models.BigIntegerField(default=0)
    """The last seq stored without a gap, sent to the supervisor as `ack`; written only by ingest."""
    resume_from = models.TextField(blank=True)
    resume_step = models.IntegerField(default=0)
    priority = models.IntegerField(default=Priority.NORMAL)
    turn = models.FloatField(default=time.time)
    """Position among attempts of the same priority, as seconds since 1970 (see runs.scheduling.queueing)."""
    waits_for = models.CharField(max_length=200, blank=True)
    """In words; the next two fields name the run. runs.sentences combines them."""
    waits_how = models.CharField(max_length=12, blank=True, choices=[(w, w) for w in Waits])
    waits_on = models.ForeignKey(Run, null=True, on_delete=models.SET_NULL, related_name="+")
    phase = models.CharField(max_length=24, blank=True)
    phase_detail = models.TextField(blank=True)
    exit_codes = models.JSONField(default=dict)
    receipt = models.JSONField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    dispatched_at = models.DateTimeField(null=True)
    launches_sent = models.IntegerField(default=0)
    launch_sent_at = models.DateTimeField(null=True)
    claimed_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True, db_index=True)
    last_seen_at = models.DateTimeField(null=True)
    """The supervisor's last contact, by the control plane's clock."""
    boot_id = models.CharField(max_length=64, blank=True)
    supervisor_pid = models.IntegerField(null=True)
    """With boot_id: the supervisor that has claimed the attempt."""
    reap_sent_at = models.DateTimeField(null=True)
    stop_requested_at = models.DateTimeField(null=True)
    stop_mode = models.CharField(max_length=8, blank=True, choices=[(m, m) for m in StopMode])
    stop_requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    resumes_at = models.DateTimeField(null=True, db_index=True)
    """When the tick resumes the run after this attempt's end; NULL: it doesn't (see runs.scheduling.recovery)."""
    samples_ack = models.IntegerField(default=0)
    """Lines of samples.jsonl stored."""

    class Meta:
        ordering = ("run", "number")
        indexes = [models.Index(fields=["status", "run", "number"], name="attempt_status")]
        constraints = [
            models.UniqueConstraint(fields=["run", "number"], name="attempt_number"),
            models.UniqueConstraint(
                fields=["run"],
                condition=Q(status__in=["queued", "starting", "running", "stopping"]),
                name="one_live_attempt",
            ),
        ]

    def __str__(self) -> str:
        return self.id

    @property
    def gpus(self) -> tuple[int, ...]:
        """The GPUs of its placement: the trainer's, then vLLM's, without duplicates."""
        placed: dict[str, list[int]] = self.placement or {}
        return tuple(dict.fromkeys(gpu for of in ("gpus", "server_gpus") for gpu in placed.get(of) or ()))


class RunEvent(models.Model):
    """A timeline entry: an outbox line other than a metric (with seq), or an act of the control plane (without)."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="events")
    seq = models.BigIntegerField(null=True)
    at = models.DateTimeField()
    kind = models.CharField(max_length=24)
    """A workers.contract.EventKind, or `status` (data: {"from", "to", "reason"}), `requested`, ..."""
    step = models.IntegerField(null=True)
    actor = models.CharField(max_length=150, blank=True)
    """User name, `supervisor`, `tick`, ..."""
    data: models.JSONField[dict[str, Any], dict[str, Any]] = models.JSONField(default=dict)

    class Meta:
        ordering = ("id",)
        indexes = [models.Index(fields=["run", "seq"])]
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="event_seq")]


class MetricRow(models.Model):
    """One outbox line of numbers, unfolded; serves reads after a cursor. Deleted once folded and acknowledged."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE)
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE)
    seq = models.BigIntegerField()
    t = models.FloatField()
    kind = models.CharField(max_length=8, choices=[(k, k) for k in (EventKind.TRAIN, EventKind.SYSTEM, EventKind.VLLM)])
    step = models.IntegerField(null=True)
    values = models.JSONField()
    superseded = models.BooleanField(default=False)
    """A later attempt resumed from an earlier step: no longer counted or drawn."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="metric_seq")]


class MetricChunk(models.Model):
    """About 1,000 consecutive points of one metric of one run, made by folding."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE)
    metric = models.CharField(max_length=200)
    first_seq = models.BigIntegerField()
    last_seq = models.BigIntegerField()
    points = models.IntegerField()
    data = models.BinaryField()
    """Packed little-endian columns: seq int64, step int32 (-1: none), t float64, value float64."""

    class Meta:
        ordering = ("run", "metric", "first_seq")
        constraints = [models.UniqueConstraint(fields=["run", "metric", "first_seq"], name="chunk_start")]


class ChunkOutline(models.Model):
    """The lowest and highest points of each stretch of a chunk, from which charts of long runs are drawn.

    A separate table, because a row store would read the chunk's data on the way to it.
    """

    chunk = models.OneToOneField(MetricChunk, on_delete=models.CASCADE, primary_key=True, related_name="outline")
    data = models.BinaryField()
    """Packed little-endian rows: seq int64, step int32 (-1: none), t float64, value float64."""


class HealthPreset(models.Model):
    """A named set of bounds for the health rules; each run uses one."""

    name = models.CharField(max_length=80, unique=True)
    slug = models.CharField(max_length=40, unique=True, null=True)  # noqa: DJ001
    """Of a built-in preset; NULL for custom ones."""
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    bounds = models.JSONField(default=dict)
    """Rule -> its bounds and whether it is on, where they differ from the rule's defaults."""
    source = models.TextField(blank=True)
    """The source of the numbers."""
    is_default = models.BooleanField(default=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)
        constraints = [
            models.UniqueConstraint(fields=["is_default"], condition=Q(is_default=True), name="one_default_preset")
        ]

    def __str__(self) -> str:
        return self.name


class SavedView(models.Model):
    """A saved filter and order of the run list."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=60)
    query = models.TextField()
    """The list's query string, without the question mark."""

    class Meta:
        ordering = ("name",)
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="view_name")]

    def __str__(self) -> str:
        return self.name


class PromptProgress(models.Model):
    """A row of the dataset over a run: visits and solved completions; stays when its groups are deleted."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="prompts")
    row = models.IntegerField()
    visits = models.IntegerField(default=0)
    completions = models.IntegerField(default=0)
    solved = models.IntegerField(default=0)
    first_step = models.IntegerField()
    last_step = models.IntegerField()
    first_solved_step = models.IntegerField(null=True)
    first_mean = models.FloatField(null=True)
    """The group's mean reward at the first visit."""
    last_mean = models.FloatField(null=True)
    best = models.FloatField(null=True)
    recent = models.JSONField(default=list)
    """The last visits, oldest first: [step, completions, solved]. The next two are their sums."""
    recent_completions = models.IntegerField(default=0)
    recent_solved = models.IntegerField(default=0)
    gone = models.JSONField(default=dict)
    """Sums over the visits whose groups are deleted, by column name; {}: none."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "row"], name="prompt_of_run")]


class SampleRow(models.Model):
    """One prompt group of one step: the prompt, its completions, their rewards and advantages."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="samples")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE)
    line = models.IntegerField()
    """Line number in the attempt's samples.jsonl, from 1."""
    step = models.IntegerField()
    row = models.IntegerField(null=True)
    """Row number in the dataset; NULL if the line has none."""
    mode = models.CharField(max_length=8, default="train")
    """train | eval | replaced: generated and scored, but not trained on"""
    reward_low = models.FloatField(null=True)
    reward_high = models.FloatField(null=True)
    reward_mean = models.FloatField(null=True)
    completions = models.IntegerField(default=0)
    solved = models.IntegerField(default=0)
    """Solved completions, as defined by runs.completions.solving."""
    size = models.IntegerField(default=0)
    """Size of `data` as JSON, in bytes; 0: the texts are deleted, the figures of each completion are kept."""
    superseded = models.BooleanField(default=False)
    """A later attempt resumed from an earlier step."""
    data = models.JSONField()

    class Meta:
        indexes = [models.Index(fields=["run", "-step"]), models.Index(fields=["run", "row", "step"])]
        constraints = [models.UniqueConstraint(fields=["attempt", "line"], name="sample_line")]


class SampleStore(models.Model):
    """The amount of a run's stored completions; locked by their writers: uploads and retention."""

    run = models.OneToOneField(Run, primary_key=True, on_delete=models.CASCADE)
    size = models.BigIntegerField(default=0)
    """Bytes of the groups that still have their texts."""
    one_in = models.IntegerField(default=1)
    """Before `whole_from`, one prompt in this many keeps its texts."""
    whole_from = models.IntegerField(default=0)
    """From this step on, all texts are stored."""
    completions = models.BigIntegerField(default=0)
    """Completions of all stored groups, with or without texts."""
    groups_from = models.IntegerField(default=0)
    """Groups of earlier steps are deleted; their prompts stay counted."""


class LogChunk(models.Model):
    """Bytes of an attempt's log file, as sent by the supervisor."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE)
    name = models.CharField(max_length=16)
    offset = models.BigIntegerField()
    data = models.BinaryField()

    class Meta:
        ordering = ("attempt", "name", "offset")
        constraints = [models.UniqueConstraint(fields=["attempt", "name", "offset"], name="log_offset")]


class Lease(models.Model):
    """Reserves one resource of a host for an attempt; released only once the GPUs are proved free."""

    HELD, QUARANTINED, RELEASED = "held", "quarantined", "released"

    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, related_name="leases")
    host = models.ForeignKey("hardware.Host", on_delete=models.PROTECT, related_name="leases")
    resource = models.CharField(max_length=32)
    """`gpu:0`, `cpu:1`, `port:18200`"""
    state = models.CharField(max_length=12, default=HELD, choices=[(s, s) for s in (HELD, QUARANTINED, RELEASED)])
    taken_at = models.DateTimeField(auto_now_add=True)
    released_at = models.DateTimeField(null=True)
    released_by = models.CharField(max_length=150, blank=True)

    class Meta:
        indexes = [models.Index(fields=["state", "resource"], name="lease_state")]  # SQLite uses no partial one here
        constraints = [
            models.UniqueConstraint(
                fields=["host", "resource"], condition=Q(state__in=["held", "quarantined"]), name="one_lease_a_resource"
            )
        ]
