"""Database models of what runs report: events, metrics, samples and logs."""

from typing import Any

from django.db import models

from workers.contract.wire.names import EventKind


class RunEvent(models.Model):
    """A timeline entry: an outbox line other than a metric (with a seq), or an action of the control plane
    (without)."""

    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="events")
    attempt = models.ForeignKey("runs.Attempt", on_delete=models.CASCADE, related_name="events")
    seq = models.BigIntegerField(null=True)
    at = models.DateTimeField()
    kind = models.CharField(max_length=24)
    """An EventKind (workers.contract.wire.names), or `status` (data: {"from", "to", "reason"}), `requested`, …"""
    step = models.IntegerField(null=True)
    actor = models.CharField(max_length=150, blank=True)
    """A user name, or `supervisor`, `tick`, …"""
    data: "models.JSONField[dict[str, Any], dict[str, Any]]" = models.JSONField(default=dict)

    class Meta:
        ordering = ("id",)
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="event_seq")]


class MetricRow(models.Model):
    """One outbox line of numbers, for reads after a cursor. Once folded, it is deleted unless it is among a run's
    newest lines (folding.KEEP_ROWS). Only the run is indexed, since each index costs another page write per line."""

    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, db_index=False)
    attempt = models.ForeignKey("runs.Attempt", on_delete=models.CASCADE, db_index=False)
    seq = models.BigIntegerField()
    t = models.FloatField()
    kind = models.CharField(max_length=8, choices=[(k, k) for k in (EventKind.TRAIN, EventKind.SYSTEM, EventKind.VLLM)])
    step = models.IntegerField(null=True)
    values = models.JSONField()
    superseded = models.BooleanField(default=False)
    """True if a later attempt resumed from an earlier step, so that the line is no longer counted or drawn."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="metric_seq")]


class MetricChunk(models.Model):
    """About 1,000 consecutive points of one metric of one run, created by folding."""

    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE)
    metric = models.CharField(max_length=200)
    first_seq = models.BigIntegerField()
    last_seq = models.BigIntegerField()
    points = models.IntegerField()
    data = models.BinaryField()
    """Packed little-endian columns: seq int64, step int32 (-1 for none), t float64, value float64."""

    class Meta:
        ordering = ("run", "metric", "first_seq")
        constraints = [models.UniqueConstraint(fields=["run", "metric", "first_seq"], name="chunk_start")]


class ChunkOutline(models.Model):
    """The lowest and highest points of each section of a chunk, from which charts of long runs are drawn. They are in a
    separate table, because reading them from the chunk's row would also read the chunk's data."""

    chunk = models.OneToOneField(MetricChunk, on_delete=models.CASCADE, primary_key=True, related_name="outline")
    data = models.BinaryField()
    """Packed little-endian rows: seq int64, step int32 (-1 for none), t float64, value float64."""


class PromptProgress(models.Model):
    """The visits and solved completions of one dataset row in a run. They are kept when the row's groups are
    deleted."""

    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="prompts")
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
    """The last visits, oldest first, as [step, completions, solved]. The next two fields are their sums."""
    recent_completions = models.IntegerField(default=0)
    recent_solved = models.IntegerField(default=0)
    gone = models.JSONField(default=dict)
    """Sums over the visits whose groups are deleted, by column name; {} if there are none."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "row"], name="prompt_of_run")]


class SampleRow(models.Model):
    """One prompt group of one step: the prompt with its completions, rewards and advantages."""

    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="samples")
    attempt = models.ForeignKey("runs.Attempt", on_delete=models.CASCADE)
    line = models.IntegerField()
    """Line number in the attempt's samples.jsonl, from 1."""
    step = models.IntegerField()
    row = models.IntegerField(null=True)
    """Row number in the dataset; NULL if the line has none."""
    mode = models.CharField(max_length=8, default="train")
    """`train`, `eval`, or `replaced` for a group that was generated and scored but not trained on."""
    reward_low = models.FloatField(null=True)
    reward_high = models.FloatField(null=True)
    reward_mean = models.FloatField(null=True)
    completions = models.IntegerField(default=0)
    solved = models.IntegerField(default=0)
    """Number of solved completions, as defined by runs.insight.completions.solving."""
    scored = models.IntegerField(null=True)
    """Number of completions with a total reward; NULL if an earlier version stored the group."""
    unfinished = models.IntegerField(null=True)
    """Number of scored completions that the length limit or a stop string ended; NULL as for `scored`."""
    size = models.IntegerField(default=0)
    """Size of `data` as JSON, in bytes; 0 if its texts are deleted and only the values of each completion are kept."""
    superseded = models.BooleanField(default=False)
    sources = models.TextField(default="")
    """The prompt's sources and tags that are followed, each between two line breaks."""
    data = models.JSONField()

    class Meta:
        indexes = [models.Index(fields=["run", "-step"]), models.Index(fields=["run", "row", "step"])]
        constraints = [models.UniqueConstraint(fields=["attempt", "line"], name="sample_line")]


class SampleStore(models.Model):
    """The amount of a run's stored completions. Writers of completions (uploads and retention) lock this row."""

    run = models.OneToOneField("runs.Run", primary_key=True, on_delete=models.CASCADE)
    size = models.BigIntegerField(default=0)
    """Bytes of the groups that still have their texts."""
    one_in = models.IntegerField(default=1)
    """Thinning of the steps before `whole_from`: one prompt in this many keeps its texts."""
    whole_from = models.IntegerField(default=0)
    """Step from which all texts are stored."""
    completions = models.BigIntegerField(default=0)
    """Number of completions of all stored groups, with or without texts."""
    groups_from = models.IntegerField(default=0)
    """Step before which groups are deleted; their prompts are still counted in PromptProgress."""


class LogChunk(models.Model):
    """Bytes of an attempt's log file, as sent by the supervisor."""

    attempt = models.ForeignKey("runs.Attempt", on_delete=models.CASCADE)
    name = models.CharField(max_length=16)
    offset = models.BigIntegerField()
    data = models.BinaryField()

    class Meta:
        ordering = ("attempt", "name", "offset")
        constraints = [models.UniqueConstraint(fields=["attempt", "name", "offset"], name="log_offset")]


def number(value: object) -> float | None:
    """Convert a stored JSON value to a float; return None if it is not a number or is too large for a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
