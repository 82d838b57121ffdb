"""Forms that add a dataset from an upload, typed rows, the hub, a path on the server, or tasks of reasoning-gym."""

import io
import re
from pathlib import PurePath
from typing import Any

from django import forms

from controlplane.catalogue.datasets import actions
from controlplane.catalogue.datasets.errors import SourceRefused
from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
from controlplane.catalogue.datasets.receiving import shown_name
from controlplane.catalogue.datasets.sources import MAX_FAMILIES, HubSource, PathSource, Source, TasksSource
from controlplane.platform.accounts.models import User
from workers.packages.families import FAMILIES
from workers.packages.reasoning import MAX_ROWS, MAX_SEED

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
NAME_LENGTH = 80
CODE_ATTRIBUTES = {"autocomplete": "off", "spellcheck": "false", "class": "code"}
"""HTML attributes of an input for names and paths."""


def name_problem(name: str) -> str:
    """Explain why a new dataset can't have this name; return "" if it can."""
    if CONTROL.search(name):
        return "A name can't contain control characters."
    if Dataset.objects.filter(name=name).exists():
        return f"There is already a dataset “{name}”. Choose another name, or open it and add a new version there."
    return ""


def named_after_file(file_name: str) -> str:
    """Derive the default name of a dataset from its file's name."""
    name = PurePath(shown_name(file_name))
    return _usable(PurePath(name.stem).stem if name.suffix.lower() == ".gz" else name.stem)


def _usable(name: str) -> str:
    return name[:NAME_LENGTH].strip() or "dataset"


class AddingForm(forms.Form):
    """Base class of the forms. It asks for a name only for a new dataset."""

    error_field: str
    """Field that shows the errors raised by `create`."""

    name = forms.CharField(
        max_length=NAME_LENGTH,
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )

    def __init__(self, *args: Any, dataset: Dataset | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["name"].help_text = self.name_help
        if dataset is not None:
            del self.fields["name"]

    name_help = "Defaults to the file name. All versions share it; it can be changed later."

    def proposed_name(self, fields: dict[str, Any]) -> str:
        raise NotImplementedError

    def create(self, user: User, name: str, *, must_be_new: bool) -> DatasetVersion:
        """Create the version that the valid form describes. Raises DatasetError if it can't be created."""
        raise NotImplementedError

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        if "name" not in self.fields or "name" in self.errors:
            return fields
        if not fields["name"] and not self.errors:
            fields["name"] = _usable(self.proposed_name(fields))
        if fields["name"] and (problem := name_problem(fields["name"])):
            self.add_error("name", problem)
        return fields


class UploadForm(AddingForm):
    error_field = "file"
    file = forms.FileField(
        label="File",
        allow_empty_file=True,  # rejected in `clean_file`, with our own message
        max_length=None,
        help_text="JSON Lines or other JSON, CSV, TSV or Parquet, optionally gzipped. "
        "The format is detected from the content, not from the file name.",
        widget=forms.FileInput(),
        error_messages={"required": "Choose a file.", "missing": "Choose a file.", "invalid": "Choose a file."},
    )
    field_order = ("name", "file")

    def clean_file(self) -> Any:
        file = self.cleaned_data["file"]
        if not file.size:
            raise forms.ValidationError("The file is empty.")
        return file

    def proposed_name(self, fields: dict[str, Any]) -> str:
        return named_after_file(fields["file"].name)

    def create(self, user: User, name: str, *, must_be_new: bool) -> DatasetVersion:
        file = self.cleaned_data["file"]
        return actions.create_from_upload(user, name, file, file.name, must_be_new=must_be_new)


class RowsForm(AddingForm):
    error_field = "rows"
    name_help = "Defaults to “rows”. All versions share it."

    rows = forms.CharField(
        strip=False,
        widget=forms.Textarea(attrs={"rows": 12, "class": "code", "spellcheck": "false", "wrap": "off"}),
        help_text="In the format of a file: JSON Lines, a JSON list, or CSV with a header line. "
        "Cells copied from a spreadsheet work too.",
        error_messages={"required": "Type or paste at least one row."},
    )
    field_order = ("rows", "name")

    def clean_rows(self) -> str:
        rows: str = self.cleaned_data["rows"]
        if not rows.strip():
            raise forms.ValidationError("Type or paste at least one row.")
        return rows

    def proposed_name(self, fields: dict[str, Any]) -> str:
        return "rows"

    def create(self, user: User, name: str, *, must_be_new: bool) -> DatasetVersion:
        rows = io.BytesIO(self.cleaned_data["rows"].encode())
        return actions.create_from_upload(user, name, rows, "rows", must_be_new=must_be_new)


class SourceForm(AddingForm):
    """Base class of the forms for sources that the worker fetches."""

    source: Source

    def source_of(self, fields: dict[str, Any]) -> Source:
        """Return the source that the fields describe. Raises SourceRefused if it isn't valid."""
        raise NotImplementedError

    def clean(self) -> dict[str, Any]:
        if not self.errors:
            try:
                self.source = self.source_of(self.cleaned_data)
            except SourceRefused as error:
                about_level = "level" in self.fields and "level" in str(error)
                self.add_error("level" if about_level else self.error_field, str(error))
        return super().clean()

    def create(self, user: User, name: str, *, must_be_new: bool) -> DatasetVersion:
        return actions.create_from_source(user, name, self.source, must_be_new=must_be_new)


class HubForm(SourceForm):
    error_field = "id"
    name_help = "Defaults to the dataset’s id. All versions share it."

    id = forms.CharField(
        label="Dataset id",
        max_length=200,
        help_text="The owner and name on the hub, such as openai/gsm8k.",
        widget=forms.TextInput(attrs=CODE_ATTRIBUTES),
    )
    config = forms.CharField(
        label="Configuration",
        max_length=100,
        required=False,
        help_text="Also called a subset, such as main. Leave empty for the dataset's default.",
        widget=forms.TextInput(attrs=CODE_ATTRIBUTES),
    )
    split = forms.CharField(
        max_length=100,
        initial="train",
        help_text="The split to import. The validation rows are drawn from it.",
        widget=forms.TextInput(attrs=CODE_ATTRIBUTES),
    )
    revision = forms.CharField(
        max_length=200,
        initial="main",
        help_text="A branch, a tag or a commit. The version records the commit.",
        widget=forms.TextInput(attrs=CODE_ATTRIBUTES),
    )
    field_order = ("id", "config", "split", "revision", "name")

    def source_of(self, fields: dict[str, Any]) -> Source:
        return HubSource(fields["id"], fields["config"], fields["split"], fields["revision"])

    def proposed_name(self, fields: dict[str, Any]) -> str:
        return " ".join(word for word in (fields["id"].rpartition("/")[2], fields["config"]) if word)


class PathForm(SourceForm):
    error_field = "path"
    path = forms.CharField(
        label="Path on the server",
        max_length=4000,
        strip=False,
        help_text="A file, or a folder of files in one format. The data is copied, so later changes have no effect.",
        widget=forms.TextInput(attrs=CODE_ATTRIBUTES),
    )
    field_order = ("path", "name")

    def source_of(self, fields: dict[str, Any]) -> Source:
        return PathSource(fields["path"])

    def proposed_name(self, fields: dict[str, Any]) -> str:
        return PurePath(shown_name(fields["path"].rstrip("/"))).stem


def _families() -> list[tuple[str, list[tuple[str, str]]]]:
    by_kind: dict[str, list[tuple[str, str]]] = {}
    for name, family in FAMILIES.items():
        levels = f" ({family.levels} levels)" if family.levels else ""
        by_kind.setdefault(family.kind, []).append((name, f"{name}: {family.about}{levels}"))
    return list(by_kind.items())


class TasksForm(SourceForm):
    error_field = "families"
    name_help = "Defaults to the first family’s name. All versions share it."

    families = forms.MultipleChoiceField(
        choices=_families,
        help_text=f"At most {MAX_FAMILIES}. Tasks of several families alternate.",
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Choose at least one family."},
    )
    rows = forms.IntegerField(
        initial=1000, min_value=1, max_value=MAX_ROWS, help_text="Total number of tasks from all families."
    )
    level = forms.IntegerField(
        label="Difficulty",
        initial=0,
        min_value=0,
        help_text="A level that every chosen family has, from 1, the easiest. Enter 0 for the families' own settings.",
    )
    seed = forms.IntegerField(
        initial=0, min_value=0, max_value=MAX_SEED, help_text="Another seed generates different tasks of the same kind."
    )
    field_order = ("families", "rows", "level", "seed", "name")

    def source_of(self, fields: dict[str, Any]) -> Source:
        return TasksSource(tuple(fields["families"]), fields["rows"], fields["seed"], fields["level"])

    def proposed_name(self, fields: dict[str, Any]) -> str:
        return str(fields["families"][0])
