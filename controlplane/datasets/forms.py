"""Forms of the dataset pages."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any

from django import forms

from controlplane.datasets.flow import shown_name
from controlplane.datasets.mapping import ColumnMapping
from controlplane.datasets.models import Dataset, DatasetVersion

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class UploadForm(forms.Form):
    name = forms.CharField(
        max_length=80, required=False, help_text="Left empty: the file's name. It stays the same over versions."
    )
    file = forms.FileField(
        label="JSONL file",
        allow_empty_file=True,  # refused below, in our own words
        max_length=None,
        help_text="One JSON object a line, UTF-8. Each line becomes one prompt.",
        widget=forms.FileInput(attrs={"accept": ".jsonl,.ndjson,.json,application/jsonl,application/x-ndjson"}),
        error_messages={"required": "Choose a file.", "missing": "Choose a file.", "invalid": "Choose a file."},
    )

    def __init__(self, *args: Any, dataset: Dataset | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if dataset is not None:
            del self.fields["name"]

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if _CONTROL.search(name):
            raise forms.ValidationError("A name has no control characters.")
        return name

    def clean_file(self) -> Any:
        file = self.cleaned_data["file"]
        if not file.size:
            raise forms.ValidationError("The file is empty.")
        return file

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        if "name" in self.fields and "name" not in self.errors and not fields["name"] and fields.get("file"):
            fields["name"] = PurePath(shown_name(fields["file"].name)).stem[:80] or "dataset"
        if "name" in fields and Dataset.objects.filter(name=fields["name"]).exists():
            message = f"There is already a dataset “{fields['name']}”. Open it to upload a new version of it."
            self.add_error("name", message)
        return fields


def _columns(field: forms.Field, choices: list[tuple[str, str]]) -> forms.ChoiceField:
    return forms.ChoiceField(label=field.label, required=field.required, help_text=field.help_text, choices=choices)


class MappingForm(forms.Form):
    prompt = forms.ChoiceField(label="Prompt column")
    answer = forms.ChoiceField(
        label="Answer column",
        required=False,
        help_text="What rewards compare with. None: no reward may need an answer.",
    )
    answer_after = forms.CharField(
        label="Answer after",
        max_length=40,
        required=False,
        help_text="Only what follows the last such marker is the answer; #### in GSM8K. Empty: the whole text.",
    )
    chat = forms.ChoiceField(
        label="Prompt becomes",
        choices=[("chat", "Chat messages"), ("plain", "Plain text")],
        help_text="Messages go through the model's chat template; a base model without one takes plain text.",
    )
    system_prompt = forms.CharField(
        label="System prompt",
        max_length=8000,
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Goes before every prompt, for instance to ask for <think> and <answer> tags.",
    )

    def __init__(self, version: DatasetVersion, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = [(name, name) for name in version.report_columns]
        self.fields["prompt"] = _columns(self.fields["prompt"], names)
        self.fields["answer"] = _columns(self.fields["answer"], [("", "no answers"), *names])

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        if fields.get("prompt") and fields.get("prompt") == fields.get("answer"):
            self.add_error("answer", "Prompt and answer can't be the same column.")
        if fields.get("answer_after") and not fields.get("answer"):
            self.add_error("answer_after", "This needs an answer column.")
        return fields

    def mapping(self, *, leave_out: bool) -> ColumnMapping:
        fields = self.cleaned_data
        return ColumnMapping(
            prompt=fields["prompt"],
            answer=fields["answer"],
            answer_after=fields["answer_after"],
            system_prompt=fields["system_prompt"].replace("\r\n", "\n").strip(),
            chat=fields["chat"] == "chat",
            leave_out=leave_out,
        )

    @staticmethod
    def initial_of(mapping: ColumnMapping) -> dict[str, Any]:
        return mapping.as_dict() | {"chat": "chat" if mapping.chat else "plain"}
