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
    mapping = models.JSONField(default=dict)
    """{"prompt": column, "answer": column|"", "answer_after": marker, "system_prompt": text, "chat": bool}"""
    report = models.JSONField(default=dict)
    """{"errors": [{"line", "kind", "message", "excerpt"}], "error_count": int, "preview": [row, ...]}"""
    sha256 = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("dataset", "-number")
        constraints = [models.UniqueConstraint(fields=["dataset", "number"], name="dataset_version_number")]

    def __str__(self) -> str:
        return f"{self.dataset.name} v{self.number}"

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
