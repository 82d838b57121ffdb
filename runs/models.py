"""Rows of a run and its attempts. No side effects: flows live in the modules named after them."""

from __future__ import annotations

import secrets
import time
from enum import StrEnum
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q

from runs.states import EndReason, RunStatus
from workers.contract import EventKind, StopMode

_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def new_run_id() -> str:
    """A short random name for folders and URLs; letters first, nothing to mistake (no i, l, o, 0, 1)."""
    return "r" + "".join(secrets.choice(_ALPHABET) for _ in range(9))


class Run(models.Model):
    """What people launch and look at. Status, reason, lease and receipt are its latest attempt's."""

    id = models.CharField(primary_key=True, max_length=16, default=new_run_id, editable=False)
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=16, default="train")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="runs")
    created_at = models.DateTimeField(auto_now_add=True)
    spec = models.JSONField()
    """workers.contract.RunSpec, frozen at submit."""
    host = models.ForeignKey("hardware.Host", null=True, blank=True, on_delete=models.SET_NULL)
    """The host asked for at launch; None: any host that fits."""
    dataset_version = models.ForeignKey("datasets.DatasetVersion", on_delete=models.PROTECT, related_name="runs")
    reward_version = models.ForeignKey("rewards.RewardVersion", models.SET_NULL, related_name="runs", null=True)
    profile = models.ForeignKey("hardware.HardwareProfile", null=True, on_delete=models.SET_NULL)
    last_seq = models.BigIntegerField(default=0)
    """Highest seq stored; written by ingest alone."""
    step = models.IntegerField(default=0)
    max_steps = models.IntegerField(null=True)
    last_metrics = models.JSONField(default=dict)
    """The newest value of each metric, for lists and headlines; written by ingest alone."""
    launch_key = models.CharField(max_length=64, null=True, unique=True)  # noqa: DJ001
    """Made of who launched, the page and what it held: a second click finds the run of the first. NULL: no page."""
    trial = models.ForeignKey("ProfileTrial", null=True, on_delete=models.SET_NULL, related_name="runs")
    """Of kind `trial`: the question that it helps to answer."""
    folded_seq = models.BigIntegerField(default=0)
    """Metric rows up to this seq are in chunks; written by folding alone."""
    tags = models.JSONField(default=list)
    """Short words that people gave it, each once, in the order of the alphabet."""
    notes = models.TextField(blank=True)
    archived_at = models.DateTimeField(null=True)
    """Put away: the list shows it only when asked."""
    trend = models.JSONField(default=list)
    """Its reward in at most 40 points, for the list's sparkline; written by ingest and folding alone."""
    trend_of = models.IntegerField(default=0)
    """How many rewards the trend stands for."""
    preset = models.ForeignKey("HealthPreset", null=True, on_delete=models.SET_NULL)
    """The bounds that its health goes by; None: those of the default preset."""
    health = models.JSONField(default=dict)
    """The last assessment, as runs.health.assess answers it; written by runs.health alone. {}: none yet."""

    class Meta:
        ordering = ("-created_at",)
        indexes = [
            models.Index(fields=["-created_at"], name="run_newest"),
            # The list as it usually is, counted and put in order without a look at the wide rows.
            models.Index(fields=["archived_at", "-created_at", "kind"], name="run_listed"),
        ]

    def __str__(self) -> str:
        return self.name

    def latest(self) -> Attempt:
        """The attempt whose status, reason, lease and receipt the run shows; no query if attempts are prefetched."""
        return max(self.attempts.all(), key=lambda attempt: attempt.number)


class ProfileTrial(models.Model):
    """Which hardware profiles fit a model on a host: two steps of each candidate, as runs of kind `trial`."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT)
    host = models.ForeignKey("hardware.Host", null=True, on_delete=models.SET_NULL)
    model = models.CharField(max_length=500)
    dataset_version = models.ForeignKey("datasets.DatasetVersion", null=True, on_delete=models.SET_NULL)
    reward_version = models.ForeignKey("rewards.RewardVersion", models.SET_NULL, related_name="+", null=True)
    refused = models.JSONField(default=list)
    """Candidates that were not launched: [{"profile": id, "name": str, "why": str, "fits": False or None}]."""
    launch_key = models.CharField(max_length=64, null=True, unique=True)  # noqa: DJ001
    """As a run's: a second click finds the trial of the first."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-created_at",)

    def candidates(self) -> int:
        """No query if the runs are prefetched."""
        return len(self.runs.all()) + len(self.refused)


class Waits(StrEnum):
    """How what an attempt waits for is another run's."""

    HELD = "held"
    QUARANTINED = "quarantined"
    """Not proved free after that run: a person's act, or the host's, lets it go."""
    KEPT = "kept"
    """Free, and kept for that run, which is before it in the queue."""


class Priority(models.IntegerChoices):
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
    """What exactly happened, in words, beside the reason's own sentence."""
    host = models.ForeignKey("hardware.Host", null=True, on_delete=models.PROTECT)
    placement = models.JSONField(null=True)
    first_seq = models.BigIntegerField(null=True)
    last_seq = models.BigIntegerField(default=0)
    """Last seq of this attempt stored without a gap: what it is told as `ack`; written by ingest alone."""
    resume_from = models.TextField(blank=True)
    resume_step = models.IntegerField(default=0)
    priority = models.IntegerField(default=Priority.NORMAL)
    turn = models.FloatField(default=time.time)
    """Its place among those of its priority, in seconds since 1970; runs.scheduling.queueing has the order."""
    waits_for = models.CharField(max_length=200, blank=True)
    """In words; whose that is, is in the next two. runs.sentences puts them together."""
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
    """When it became RUNNING."""
    ended_at = models.DateTimeField(null=True)
    last_seen_at = models.DateTimeField(null=True)
    """When its supervisor was last heard, by the control plane's clock."""
    boot_id = models.CharField(max_length=64, blank=True)
    supervisor_pid = models.IntegerField(null=True)
    """With boot_id: which supervisor has claimed the attempt."""
    reap_sent_at = models.DateTimeField(null=True)
    stop_requested_at = models.DateTimeField(null=True)
    stop_mode = models.CharField(max_length=8, blank=True, choices=[(m, m) for m in StopMode])
    stop_requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    samples_ack = models.IntegerField(default=0)
    """Lines of samples.jsonl stored."""

    class Meta:
        ordering = ("run", "number")
        indexes = [models.Index(fields=["status"], name="attempt_status")]
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
        """Those it was placed on: the trainer's, then vLLM's, each once."""
        placed: dict[str, list[int]] = self.placement or {}
        return tuple(dict.fromkeys(gpu for of in ("gpus", "server_gpus") for gpu in placed.get(of) or ()))


class RunEvent(models.Model):
    """The timeline: a line of the outbox that is no metric (seq set), or an act of the control plane (seq null)."""

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
    """One outbox line of numbers, raw: serves "what is after n". Goes once folded and acked."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE)
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE)
    seq = models.BigIntegerField()
    t = models.FloatField()
    kind = models.CharField(max_length=8, choices=[(k, k) for k in (EventKind.TRAIN, EventKind.SYSTEM, EventKind.VLLM)])
    step = models.IntegerField(null=True)
    values = models.JSONField()
    superseded = models.BooleanField(default=False)
    """A later attempt resumed from an earlier step: counted and drawn no more."""

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
    """The lowest and the highest points of each stretch of a chunk: what a chart of a long run is drawn from.

    In a table of its own, because a database that keeps rows whole would read the chunk's data on the way to it.
    """

    chunk = models.OneToOneField(MetricChunk, on_delete=models.CASCADE, primary_key=True, related_name="outline")
    data = models.BinaryField()
    """Packed little-endian rows: seq int64, step int32 (-1: none), t float64, value float64."""


class HealthPreset(models.Model):
    """Bounds of the health rules under a name; a run goes by one of them."""

    name = models.CharField(max_length=80, unique=True)
    slug = models.CharField(max_length=40, unique=True, null=True)  # noqa: DJ001
    """Of a shipped one; NULL: somebody's own."""
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    bounds = models.JSONField(default=dict)
    """Rule -> its numbers and whether it is on, where they differ from the rule's own."""
    source = models.TextField(blank=True)
    """Where the numbers come from."""
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
    """A filter and an order of the list of runs, under a name of its owner's."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=60)
    query = models.TextField()
    """The query string of the list, without its question mark."""

    class Meta:
        ordering = ("name",)
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="view_name")]

    def __str__(self) -> str:
        return self.name


class PromptProgress(models.Model):
    """One prompt of the dataset over a run: its visits, and completions solved; kept when its groups are not."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="prompts")
    row = models.IntegerField()
    """Number of the dataset's row."""
    visits = models.IntegerField(default=0)
    completions = models.IntegerField(default=0)
    solved = models.IntegerField(default=0)
    first_step = models.IntegerField()
    last_step = models.IntegerField()
    first_solved_step = models.IntegerField(null=True)
    first_mean = models.FloatField(null=True)
    """Mean reward of the group at the first visit."""
    last_mean = models.FloatField(null=True)
    best = models.FloatField(null=True)
    gone = models.JSONField(default=dict)
    """What the visits whose groups are forgotten add up to, by the names of the columns above; {}: none is."""

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
    """Number of the dataset's row; NULL where the line named none."""
    mode = models.CharField(max_length=8, default="train")
    """train | eval"""
    reward_low = models.FloatField(null=True)
    reward_high = models.FloatField(null=True)
    """Lowest and highest total reward of the group."""
    reward_mean = models.FloatField(null=True)
    completions = models.IntegerField(default=0)
    solved = models.IntegerField(default=0)
    """Of the completions, by what runs.completions.solving counts as solved."""
    size = models.IntegerField(default=0)
    """Bytes of `data` as JSON; 0: the texts are gone, the figures of each completion are kept."""
    superseded = models.BooleanField(default=False)
    """As a metric row's: a later attempt resumed from an earlier step."""
    data = models.JSONField()

    class Meta:
        indexes = [models.Index(fields=["run", "-step"]), models.Index(fields=["run", "row", "step"])]
        constraints = [models.UniqueConstraint(fields=["attempt", "line"], name="sample_line")]


class SampleStore(models.Model):
    """How much of a run's completions is stored, and the lock of who writes them: uploads, thinning and forgetting."""

    run = models.OneToOneField(Run, primary_key=True, on_delete=models.CASCADE)
    size = models.BigIntegerField(default=0)
    """Bytes of the groups that have their texts."""
    one_in = models.IntegerField(default=1)
    """Of the steps before `whole_from`, the texts of one prompt in so many are kept."""
    whole_from = models.IntegerField(default=0)
    """Steps from it on have every text."""
    completions = models.BigIntegerField(default=0)
    """Of the groups that are stored, with their texts or without."""
    groups_from = models.IntegerField(default=0)
    """Groups of earlier steps are forgotten; their prompts stay counted."""


class LogChunk(models.Model):
    """Bytes of a log file of an attempt, as the supervisor sent them."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE)
    name = models.CharField(max_length=16)
    offset = models.BigIntegerField()
    data = models.BinaryField()

    class Meta:
        ordering = ("attempt", "name", "offset")
        constraints = [models.UniqueConstraint(fields=["attempt", "name", "offset"], name="log_offset")]


class Lease(models.Model):
    """Holds one resource of a host for an attempt; ends only when its GPUs are proved free."""

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
        constraints = [
            models.UniqueConstraint(
                fields=["host", "resource"],
                condition=Q(state__in=["held", "quarantined"]),
                name="one_lease_a_resource",
            )
        ]
