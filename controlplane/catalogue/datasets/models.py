"""Datasets and their versions. A ready version never changes: runs refer to it."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import models
from django.urls import reverse

from controlplane.catalogue.datasets.reader import files
from controlplane.platform.deletable import Deletable, Kept, unique_name
from workers.contract.run import corpora
from workers.contract.run.episodes import CorpusSpec


def column_names(report: dict[str, Any]) -> list[str]:
    """List the columns of the checked file."""
    return [column["name"] for column in report.get("columns", [])]


def rows_of(report: dict[str, Any]) -> int:
    """Count all rows of the file, including unreadable ones, which older reports don't count."""
    return int(report.get("records") or report.get("rows") or 0)


class Dataset(Deletable):
    name = models.CharField(max_length=80)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = Kept["Dataset"]()
    every = models.Manager["Dataset"]()

    class Meta:
        ordering = ("name",)
        constraints = [unique_name("dataset_name")]

    def __str__(self) -> str:
        return self.name


class DatasetVersion(models.Model):
    """An import: a source file, its mapping, and the canonical rows made from both."""

    FETCHING, CHECKING, NEEDS_MAPPING = "fetching", "checking", "needs_mapping"
    READY, INVALID = "ready", "invalid"
    STATUSES = (FETCHING, CHECKING, NEEDS_MAPPING, READY, INVALID)
    AT_WORK = (FETCHING, CHECKING)
    """A worker has a step to do: fetch a source; or check, import or derive."""
    MAY_PASS = ("disk", "server", "source")
    """Kinds of a report's file_error that aren't the file's fault."""
    UPLOAD, HUB, PATH, DERIVED, TASKS = "upload", "hub", "path", "derived", "tasks"

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions")
    number = models.IntegerField()
    status = models.CharField(max_length=16, default=CHECKING, choices=[(s, s) for s in STATUSES])
    file_name = models.CharField(max_length=255)
    """The name that the browser sent: text to show, never a path."""
    bytes = models.BigIntegerField(default=0)
    rows = models.IntegerField(default=0)
    columns = models.JSONField(default=list)
    """Column names: the file's, or the canonical ones once the version is ready."""
    mapping = models.JSONField(default=dict)
    """reader.columns.mapping.ColumnMapping; empty until one is chosen."""
    report = models.JSONField(default=dict)
    """Results of the check (reader.checking) and, under "mapped", of the import (reader.versions).

    "file_error" in either: {"kind", "message", "advice"}, also if the child process failed (errors.ChildFailed).
    """
    sha256 = models.CharField(max_length=64, blank=True)
    """The sha256 of the canonical rows, once ready, by which hosts identify them."""
    source_kind = models.CharField(
        max_length=16, default=UPLOAD, choices=[(s, s) for s in (UPLOAD, HUB, PATH, DERIVED, TASKS)]
    )
    source = models.JSONField(default=dict)
    """hub: sources.HubSource with "commit", "files" and possibly "renamed_to"; path: {"path"}; derived: {"filter"};
    tasks: sources.TasksSource with the "version" of reasoning-gym."""
    source_sha256 = models.CharField(max_length=64, blank=True, db_index=True)
    """The sha256 of the original file."""
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="children")
    """The version from whose source or rows this one was made."""
    split = models.JSONField(default=dict)
    """{"share", "seed"}: the validation share of the rows, and the seed of the draw."""
    validation_rows = models.IntegerField(default=0)
    """The number of validation rows in `rows`."""
    tokenizer = models.CharField(max_length=64, blank=True)
    """The datasets.Tokenizer.sha256 with which prompts were counted."""
    token_limit = models.IntegerField(null=True)
    """Prompts with more tokens are reported."""
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    archived_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    ready_at = models.DateTimeField(null=True)
    queued_at = models.DateTimeField(null=True)
    """When the step was requested."""
    check_started_at = models.DateTimeField(null=True)
    """When a worker started the step."""

    class Meta:
        ordering = ("dataset", "-number")
        constraints = [models.UniqueConstraint(fields=["dataset", "number"], name="dataset_version_number")]

    def __str__(self) -> str:
        return f"{self.dataset.name} v{self.number}"

    def get_absolute_url(self) -> str:
        return reverse("dataset_version", args=[self.dataset_id, self.number])

    @property
    def report_columns(self) -> list[str]:
        """The file's own columns, for choosing a mapping."""
        return column_names(self.report)

    @property
    def usable_without_bad_rows(self) -> bool:
        """True if the import can continue without the bad rows."""
        report = self.report
        read = report.get("rows") and not report.get("file_error") and not report.get("gave_up")
        return bool(self.status == self.INVALID and read)

    @property
    def may_be_tried_again(self) -> bool:
        """True if it failed for a temporary reason: the hub, the server, its disk."""
        file_error = self.report.get("file_error")
        return self.status == self.INVALID and isinstance(file_error, dict) and file_error.get("kind") in self.MAY_PASS

    @property
    def folder(self) -> Path:
        return Path(settings.DATA_DIR) / "datasets" / str(self.pk)

    @property
    def source_path(self) -> Path:
        """The unmodified upload."""
        return self.folder / files.SOURCE

    @property
    def rows_path(self) -> Path:
        """The canonical rows (reader.versions.canonical.SCHEMA)."""
        return self.folder / files.ROWS


class Tokenizer(models.Model):
    """A model's tokenizer and chat template, as uploaded by a host; the files are in `folder`."""

    sha256 = models.CharField(max_length=64, primary_key=True)
    model = models.CharField(max_length=500, db_index=True)
    """The model's name in the launch form: a hub id, or a folder on a host."""
    has_chat_template = models.BooleanField(default=False)
    bytes = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("model", "-created_at")

    def __str__(self) -> str:
        return self.model

    @property
    def folder(self) -> Path:
        """tokenizer.json, tokenizer_config.json and chat_template.jinja, as far as the model has them."""
        return Path(settings.DATA_DIR) / "tokenizers" / self.sha256


class Corpus(models.Model):
    """Named documents that a search tool reads, with versions."""

    name = models.CharField(max_length=80, unique=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class CorpusVersion(models.Model):
    """Documents built from a file's columns. A ready version never changes: environments and runs refer to it."""

    MAKING, READY, INVALID = "making", "ready", "invalid"
    STATUSES = (MAKING, READY, INVALID)

    corpus = models.ForeignKey(Corpus, on_delete=models.CASCADE, related_name="versions")
    number = models.IntegerField()
    status = models.CharField(max_length=16, default=MAKING, choices=[(s, s) for s in STATUSES])
    dataset_version = models.ForeignKey(
        DatasetVersion, null=True, blank=True, on_delete=models.SET_NULL, related_name="corpora"
    )
    """The version whose file the documents come from. None: it was deleted, or the file came with the corpus and is in
    `folder`."""
    source = models.CharField(max_length=255)
    """The origin of the documents, in words that never change."""
    title_column = models.CharField(max_length=200, blank=True)
    text_columns = models.JSONField(default=list)
    about = models.CharField(max_length=200, blank=True)
    """A description of the documents for the model: a part of the tool's description."""
    documents = models.IntegerField(default=0)
    bytes = models.BigIntegerField(default=0)
    """Size of the Parquet file."""
    report = models.JSONField(default=dict)
    """The child's answer (reader.corpus_rows); "file_error" as in DatasetVersion.report."""
    sha256 = models.CharField(max_length=64, blank=True, db_index=True)
    """Checksum of the Parquet file, by which hosts identify it."""
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    archived_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    ready_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("corpus", "-number")
        constraints = [models.UniqueConstraint(fields=["corpus", "number"], name="corpus_version_number")]

    def __str__(self) -> str:
        return corpora.title(self.corpus.name, self.number)

    def get_absolute_url(self) -> str:
        return reverse("corpus", args=[self.corpus_id, self.number])

    @property
    def folder(self) -> Path:
        return Path(settings.DATA_DIR) / "corpora" / str(self.pk)

    @property
    def path(self) -> Path:
        """The documents (workers.contract.run.corpora)."""
        return self.folder / files.DOCUMENTS

    @property
    def spec(self) -> CorpusSpec:
        return CorpusSpec(self.corpus.name, self.number, self.sha256, self.documents)


class StoredFolder(models.Model):
    """The copy of a ready version's folder in the artifact store. Outlives the version until the copy is deleted."""

    name = models.CharField(max_length=64, unique=True)
    """The path in the data folder: datasets/12, corpora/3."""
    files = models.JSONField(default=list)
    """The folder's files: [{"path", "size", "sha256"}]; each content is stored once, for all versions that have it."""
    store = models.CharField(max_length=500, blank=True)
    """The store's address at the upload."""
    stored_at = models.DateTimeField(null=True)
    problem = models.CharField(max_length=1000, blank=True)
    """The last error; empty if there was none."""
    next_at = models.DateTimeField(null=True)
    """When the upload is tried again."""
    tries = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.name
