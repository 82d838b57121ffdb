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
    """List the names of the file's columns in a check's report."""
    return [column["name"] for column in report.get("columns", [])]


def rows_of(report: dict[str, Any]) -> int:
    """Return the number of rows of the file; except in older reports, unreadable ones are included."""
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
    """Version of a dataset: a source file, its mapping, and the canonical rows made from both."""

    FETCHING, CHECKING, NEEDS_MAPPING = "fetching", "checking", "needs_mapping"
    READY, INVALID = "ready", "invalid"
    STATUSES = (FETCHING, CHECKING, NEEDS_MAPPING, READY, INVALID)
    AT_WORK = (FETCHING, CHECKING)
    """Statuses in which a worker has something to do: fetch the source, check it, import it or derive rows."""
    TEMPORARY_ERRORS = ("disk", "server", "source")
    """Kinds of a report's file_error that aren't the file's fault, so that a retry may succeed."""
    UPLOAD, HUB, PATH, DERIVED, TASKS = "upload", "hub", "path", "derived", "tasks"

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions")
    number = models.IntegerField()
    status = models.CharField(max_length=16, default=CHECKING, choices=[(s, s) for s in STATUSES])
    file_name = models.CharField(max_length=255)
    """Name that the browser sent, which is only shown and never used as a path."""
    bytes = models.BigIntegerField(default=0)
    rows = models.IntegerField(default=0)
    columns = models.JSONField(default=list)
    """Column names: the file's, or the canonical ones once the version is ready."""
    mapping = models.JSONField(default=dict)
    """A reader.columns.mapping.ColumnMapping; {} until one is chosen."""
    report = models.JSONField(default=dict)
    """Results of the check (reader.checking) and, under "mapped", of the import (reader.versions).

    "file_error" in either: {"kind", "message", "advice"}, also if the child process failed (errors.ChildFailed).
    """
    sha256 = models.CharField(max_length=64, blank=True)
    """SHA-256 of the canonical rows, by which hosts identify them; "" until the version is ready."""
    source_kind = models.CharField(
        max_length=16, default=UPLOAD, choices=[(s, s) for s in (UPLOAD, HUB, PATH, DERIVED, TASKS)]
    )
    source = models.JSONField(default=dict)
    """hub: sources.HubSource with "commit", "files" and possibly "renamed_to"; path: {"path"}; derived: {"filter"} and
    possibly "why"; tasks: sources.TasksSource with the "version" of reasoning-gym."""
    source_sha256 = models.CharField(max_length=64, blank=True, db_index=True)
    """SHA-256 of the original file."""
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="children")
    """Version whose source or rows this one was made from."""
    split = models.JSONField(default=dict)
    """{"share", "seed"}: the validation share of the rows, and the seed of the draw."""
    validation_rows = models.IntegerField(default=0)
    """Number of validation rows among `rows`."""
    tokenizer = models.CharField(max_length=64, blank=True)
    """The sha256 of the Tokenizer with which tokens are counted."""
    token_limit = models.IntegerField(null=True)
    """Number of tokens above which prompts are reported."""
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    archived_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    ready_at = models.DateTimeField(null=True)
    queued_at = models.DateTimeField(null=True)
    """Time at which the current step was requested."""
    check_started_at = models.DateTimeField(null=True)
    """Time at which a worker started the current step."""

    class Meta:
        ordering = ("dataset", "-number")
        constraints = [models.UniqueConstraint(fields=["dataset", "number"], name="dataset_version_number")]

    def __str__(self) -> str:
        return f"{self.dataset.name} v{self.number}"

    def get_absolute_url(self) -> str:
        return reverse("dataset_version", args=[self.dataset_id, self.number])

    @property
    def report_columns(self) -> list[str]:
        """Column names of the file, for choosing a mapping."""
        return column_names(self.report)

    @property
    def report_paths(self) -> list[str]:
        """Dotted paths of the values inside the file's columns, for choosing a mapping."""
        return list(self.report.get("paths", []))

    @property
    def usable_without_bad_rows(self) -> bool:
        """True if the import can continue without the bad rows."""
        report = self.report
        has_readable_rows = report.get("rows") and not report.get("file_error") and not report.get("gave_up")
        return bool(self.status == self.INVALID and has_readable_rows)

    @property
    def may_be_tried_again(self) -> bool:
        """True if the step failed for a reason that may be temporary: the hub, the server or its disk."""
        file_error = self.report.get("file_error")
        kind = file_error.get("kind") if isinstance(file_error, dict) else None
        return self.status == self.INVALID and kind in self.TEMPORARY_ERRORS

    @property
    def folder(self) -> Path:
        return Path(settings.DATA_DIR) / "datasets" / str(self.pk)

    @property
    def source_path(self) -> Path:
        """Path of the unmodified source file."""
        return self.folder / files.SOURCE

    @property
    def rows_path(self) -> Path:
        """Path of the canonical rows, in reader.versions.canonical.SCHEMA."""
        return self.folder / files.ROWS


class Tokenizer(models.Model):
    """Tokenizer and chat template of a model, as uploaded by a host; the files are in `folder`."""

    sha256 = models.CharField(max_length=64, primary_key=True)
    model = models.CharField(max_length=500, db_index=True)
    """Name of the model in the launch form: a hub id, or a folder on a host."""
    has_chat_template = models.BooleanField(default=False)
    bytes = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("model", "-created_at")

    def __str__(self) -> str:
        return self.model

    @property
    def folder(self) -> Path:
        """Folder with those of tokenizer.json, tokenizer_config.json and chat_template.jinja that exist."""
        return Path(settings.DATA_DIR) / "tokenizers" / self.sha256


class Corpus(models.Model):
    """Collection of documents for search tools, with a name and versions."""

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
    """Version whose file the documents come from; None if it was deleted, or if the corpus was created from a file of
    its own, which is in `folder`."""
    source = models.CharField(max_length=255)
    """Name of the documents' origin; it doesn't change if the origin is renamed or deleted."""
    title_column = models.CharField(max_length=200, blank=True)
    text_columns = models.JSONField(default=list)
    about = models.CharField(max_length=200, blank=True)
    """Description of the documents for the model, which becomes part of the tool's description."""
    documents = models.IntegerField(default=0)
    bytes = models.BigIntegerField(default=0)
    """Size of the Parquet file."""
    report = models.JSONField(default=dict)
    """Result of reader.corpus_rows.run; "file_error" as in DatasetVersion.report."""
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
        """Path of the documents, in the format of workers.contract.run.corpora."""
        return self.folder / files.DOCUMENTS

    @property
    def spec(self) -> CorpusSpec:
        return CorpusSpec(self.corpus.name, self.number, self.sha256, self.documents)


class StoredFolder(models.Model):
    """Copy of a ready version's folder in the artifact store. It outlives the version until the copy is deleted."""

    name = models.CharField(max_length=64, unique=True)
    """Path in the data folder, such as datasets/12 or corpora/3."""
    files = models.JSONField(default=list)
    """The folder's files: [{"path", "size", "sha256"}]; identical content is stored only once, across all versions."""
    store = models.CharField(max_length=500, blank=True)
    """Address of the store that the files were uploaded to."""
    stored_at = models.DateTimeField(null=True)
    problem = models.CharField(max_length=1000, blank=True)
    """Latest error; "" if the last try succeeded."""
    next_at = models.DateTimeField(null=True)
    """Time of the next try."""
    tries = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.name
