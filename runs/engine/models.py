"""Database models of runs, attempts and leases, without side effects."""

import secrets
import time
from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

import runs.engine.records  # noqa: F401 - Django finds an app's tables through its models module
from controlplane.platform.deletable import Deletable, Kept
from runs.engine.names import Parts, distinguish
from runs.engine.states import RunStatus, Waits
from workers.contract.wire.names import EndReason, EventKind, StopMode

_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def new_run_id() -> str:
    """Generate a short random id that starts with a letter and has no look-alikes (i, l, o, 0, 1)."""
    return "r" + "".join(secrets.choice(_ALPHABET) for _ in range(9))


class Run(Deletable):
    """A run as users launch and view it. Its status, reason, leases and receipt are those of its latest attempt."""

    id = models.CharField(primary_key=True, max_length=16, default=new_run_id, editable=False)
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=16, default="train")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="runs")
    created_at = models.DateTimeField(auto_now_add=True)
    spec = models.JSONField()
    """A RunSpec (workers.contract.run.spec), frozen at the launch."""
    host = models.ForeignKey("hardware.Host", null=True, blank=True, on_delete=models.SET_NULL)
    """The host requested at the launch; None for any host that fits."""
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
    """Key of the submitted page or API request, so that a repetition finds the run of the first; NULL without a key."""
    group = models.ForeignKey("RunGroup", null=True, on_delete=models.SET_NULL, related_name="runs")
    trial = models.ForeignKey("ProfileTrial", null=True, on_delete=models.SET_NULL, related_name="runs")
    source = models.ForeignKey("self", null=True, on_delete=models.CASCADE, related_name="jobs")
    """The run whose model or checkpoint an evaluation or job uses."""
    cloned_from = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="clones")
    """The run whose settings the form was filled with."""
    folded_seq = models.BigIntegerField(default=0)
    """Metric rows up to this seq are in chunks; written only by folding."""
    tags = models.JSONField(default=list)
    """Tags, without duplicates, in alphabetical order."""
    notes = models.TextField(blank=True)
    archived_at = models.DateTimeField(null=True)
    """Time of archiving; archived runs are listed only on request."""
    trend = models.JSONField(default=list)
    trend_of = models.IntegerField(default=0)
    reward_ends = models.JSONField(default=list)
    """The first and the last ten rewards; `trend` is the reward in at most 40 points, of `trend_of` rewards."""
    preset = models.ForeignKey("HealthPreset", null=True, on_delete=models.SET_NULL)
    """The health preset; None for the default one."""
    health = models.JSONField(default=dict)
    """The last assessment, or {} if there is none yet; written only by runs.insight.health."""

    objects = Kept["Run"]()
    every = models.Manager["Run"]()

    class Meta:
        ordering = ("-created_at",)
        indexes = [
            models.Index(fields=["-created_at"], name="run_newest"),
            models.Index(
                fields=["archived_at", "deleted_at", "-created_at", "kind", "id"], name="run_listed"
            ),  # not the wide rows
            # Whole lists of tags; PostgreSQL has each tag in run_tag, too.
            models.Index(fields=["tags", "deleted_at"], name="run_tags_and_deletion"),
            models.Index(Lower("name"), models.F("created_at").desc(), "id", name="run_by_name"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def trains(self) -> bool:
        """True for a training run: not a trial, a check, an evaluation or a job."""
        return self.kind == "train"

    def apart(self) -> Parts:
        """Split the run's name (see names.py) if other runs of its group have similar names; otherwise return []."""
        names = self.group.runs.values_list("name", flat=True) if self.group else ()
        return distinguish(names).get(self.name, [])

    def latest(self) -> "Attempt":
        """Return the latest attempt, which the run shows. This makes no query if the attempts are prefetched."""
        return max(self.attempts.all(), key=lambda attempt: attempt.number)

    def ran_s(self, now: datetime | None = None) -> float | None:
        """Sum the seconds for which the run's attempts ran (see Attempt.ran_s); return None if none of them did."""
        times = [seconds for attempt in self.attempts.all() if (seconds := attempt.ran_s(now)) is not None]
        return sum(times) if times else None

    def trainings(self) -> list[float]:
        """List the times when its attempts began to train, in Unix seconds."""
        times = self.events.filter(kind=EventKind.TRAINING).values_list("at", flat=True)
        return [started_at.timestamp() for started_at in times]


class ProfileTrial(models.Model):
    """A trial of hardware profiles for a model on a host: two steps with each candidate, as runs of kind `trial`."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT)
    host = models.ForeignKey("hardware.Host", null=True, on_delete=models.SET_NULL)
    model = models.CharField(max_length=500)
    dataset_version = models.ForeignKey("datasets.DatasetVersion", null=True, on_delete=models.SET_NULL)
    reward_version = models.ForeignKey("rewards.RewardVersion", models.SET_NULL, related_name="+", null=True)
    refused = models.JSONField(default=list)
    """Candidates that were not launched, as [{"profile": id, "name": str, "why": str, "fits": False or None}]."""
    launch_key = models.CharField(max_length=64, null=True, unique=True)  # noqa: DJ001
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-created_at",)

    def candidates(self) -> int:
        """Count the candidates. This makes no query if the runs are prefetched."""
        return len(self.runs.all()) + len(self.refused)


class RunGroup(models.Model):
    """Runs that were launched together from one form, with different seeds or a grid of settings."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT)
    at_once = models.PositiveSmallIntegerField(null=True)
    """Maximum number of the group's runs on hosts at the same time; None for no limit."""
    launch_key = models.CharField(max_length=64, null=True, unique=True)  # noqa: DJ001
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-created_at",)

    @property
    def tag(self) -> str:
        """The tag by which the run list finds the group's runs."""
        return f"group {self.pk}"


class Priority(models.IntegerChoices):
    JOB = -2, "lowest"
    LOW = -1, "low"
    NORMAL = 0, "normal"
    HIGH = 1, "high"


class Attempt(models.Model):
    """One execution of a run on a host, with its folder, leases, processes and receipt."""

    id = models.CharField(primary_key=True, max_length=24, editable=False)
    """<run id>-<number>"""
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="attempts")
    number = models.IntegerField()
    status = models.CharField(max_length=12, choices=[(s, s) for s in RunStatus], default=RunStatus.QUEUED)
    reason = models.CharField(max_length=24, blank=True, choices=[(r, r) for r in EndReason])
    detail = models.TextField(blank=True)
    """Details in addition to the reason's own sentence."""
    host = models.ForeignKey("hardware.Host", null=True, on_delete=models.PROTECT)
    placement = models.JSONField(null=True)
    first_seq = models.BigIntegerField(null=True)
    last_seq = models.BigIntegerField(default=0)
    """The last seq stored without a gap, which the supervisor gets as `ack`; written only by ingest."""
    resume_from = models.TextField(blank=True)
    resume_step = models.IntegerField(default=0)
    priority = models.IntegerField(default=Priority.NORMAL)
    turn = models.FloatField(default=time.time)
    """Position among attempts of the same priority, as seconds since 1970 (see runs.engine.scheduling.gpu_queue)."""
    waits_for = models.CharField(max_length=200, blank=True)
    """Reason why a queued attempt is waiting (see runs.engine.sentences); the next two say how, and for which run."""
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
    """Time of the supervisor's last contact, by the control plane's clock."""
    boot_id = models.CharField(max_length=64, blank=True)
    supervisor_pid = models.IntegerField(null=True)
    """Process id of the supervisor that claimed the attempt; identifies it together with boot_id."""
    reap_sent_at = models.DateTimeField(null=True)
    stop_requested_at = models.DateTimeField(null=True)
    stop_mode = models.CharField(max_length=8, blank=True, choices=[(m, m) for m in StopMode])
    stop_requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    resumes_at = models.DateTimeField(null=True, db_index=True)
    """Time of the resume planned after this attempt's end; NULL if none is planned (see scheduling.recovery)."""
    samples_ack = models.IntegerField(default=0)
    """Number of stored lines of samples.jsonl."""

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
        """The indexes of its GPUs: the trainer's, then vLLM's, without duplicates."""
        placement: dict[str, list[int]] = self.placement or {}
        return tuple(dict.fromkeys(gpu for key in ("gpus", "server_gpus") for gpu in placement.get(key) or ()))

    def ran_s(self, now: datetime | None = None) -> float | None:
        """Return the seconds from the first step's preparation to the attempt's end, or to `now` if it has not ended.
        Return None if it never got that far, or has not ended and `now` is None. Never negative, even if the clock was
        set back."""
        end = self.ended_at or now
        return max(0.0, (end - self.started_at).total_seconds()) if self.started_at and end else None


class RunDisk(models.Model):
    """The size of a run's folder on a host, as the host measured it."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="disks")
    host = models.ForeignKey("hardware.Host", on_delete=models.CASCADE, related_name="disks")
    bytes = models.BigIntegerField()
    measured_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "host"], name="disk_of_run")]


class HealthPreset(models.Model):
    """A named set of bounds for the health rules, of which each run uses one."""

    name = models.CharField(max_length=80, unique=True)
    slug = models.CharField(max_length=40, unique=True, null=True)  # noqa: DJ001
    """Identifier of a built-in preset; NULL for custom ones."""
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    bounds = models.JSONField(default=dict)
    """Rule -> its bounds and whether it is enabled, where they differ from the rule's defaults."""
    source = models.TextField(blank=True)
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


class Lease(models.Model):
    """A reservation of a host's resource for an attempt, until it is proved free or an operator releases it."""

    HELD, QUARANTINED, RELEASED = "held", "quarantined", "released"

    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, related_name="leases")
    host = models.ForeignKey("hardware.Host", on_delete=models.PROTECT, related_name="leases")
    resource = models.CharField(max_length=32)
    """Name of the resource, such as `gpu:0`, `cpu:1` or `port:18200`."""
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
