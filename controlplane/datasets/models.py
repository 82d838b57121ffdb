"""Datasets and their versions. A version is immutable once ready: runs point at it."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.db import models


class Dataset(models.Model):
    name = models.CharField(max_length=80, unique=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class DatasetVersion(models.Model):
    """One uploaded file, its column mapping, and the canonical rows made from both."""

    CHECKING, NEEDS_MAPPING, READY, INVALID = "checking", "needs_mapping", "ready", "invalid"

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions")
    number = models.IntegerField()
    status = models.CharField(
        max_length=16, default=CHECKING, choices=[(s, s) for s in (CHECKING, NEEDS_MAPPING, READY, INVALID)]
    )
    file_name = models.CharField(max_length=255)
    """As the browser sent it: text to show, never a path."""
    bytes = models.BigIntegerField(default=0)
    rows = models.IntegerField(default=0)
    columns = models.JSONField(default=list)
    """Names: the file's own, and the canonical ones once the version is ready."""
    mapping = models.JSONField(default=dict)
    """controlplane.datasets.mapping.ColumnMapping. Empty while the file itself is being checked."""
    report = models.JSONField(default=dict)
    """What validation.check found: {"errors": [{"line", "kind", "message", "excerpt"}], "error_count", "kinds",
    "file_error", "preview": [row, ...], "guess": mapping, ...}, and under "mapped" the same of map_rows."""
    sha256 = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    queued_at = models.DateTimeField(null=True)
    """When the check was asked for."""
    check_started_at = models.DateTimeField(null=True)
    """When a worker took it up."""

    class Meta:
        ordering = ("dataset", "-number")
        constraints = [models.UniqueConstraint(fields=["dataset", "number"], name="dataset_version_number")]

    def __str__(self) -> str:
        return f"{self.dataset.name} v{self.number}"

    @property
    def report_columns(self) -> list[str]:
        """The file's own columns, which the mapping chooses from."""
        return [column["name"] for column in self.report.get("columns", [])]

    @property
    def usable_without_bad_lines(self) -> bool:
        """Whether somebody may decide to go on without the lines that can't be read."""
        report = self.report
        return bool(
            self.status == self.INVALID and self.rows and not report.get("gave_up") and not report.get("file_error")
        )

    @property
    def folder(self) -> Path:
        return Path(settings.DATA_DIR) / "datasets" / str(self.pk)

    @property
    def source_path(self) -> Path:
        """The upload, untouched."""
        return self.folder / "source.jsonl"

    @property
    def rows_path(self) -> Path:
        """Canonical rows: {"row", "prompt", "answer", ...other columns} a line."""
        return self.folder / "rows.jsonl"
