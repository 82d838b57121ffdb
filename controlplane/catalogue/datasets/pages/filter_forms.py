"""Forms of a row filter (reader.versions.filtering.RowFilter), for viewing and exporting rows and deriving versions."""

from typing import Any, cast
from urllib.parse import urlencode

from django import forms

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.pages.mapping_forms import tokenizers
from controlplane.catalogue.datasets.reader import limits
from controlplane.catalogue.datasets.reader.versions import row_numbers
from controlplane.catalogue.datasets.reader.versions.filtering import NO_DIFFICULTY, SEED, FilterError, RowFilter

_NO_DIFFICULTY_LABEL = "(none)"


class FilterForm(forms.Form):
    """Form of a filter's conditions; its choices are the names in the version's statistics."""

    text = forms.CharField(
        label="Text",
        max_length=400,
        required=False,
        widget=forms.TextInput(
            attrs={"type": "search", "placeholder": "Search", "autocomplete": "off", "data-search": ""}
        ),
    )
    difficulty = forms.MultipleChoiceField(required=False)
    tags = forms.MultipleChoiceField(required=False)
    at_least = forms.IntegerField(
        label="Prompt at least", required=False, min_value=0, widget=forms.NumberInput(attrs={"placeholder": "any"})
    )
    at_most = forms.IntegerField(
        label="Prompt at most", required=False, min_value=0, widget=forms.NumberInput(attrs={"placeholder": "any"})
    )
    part = forms.ChoiceField(
        required=False,
        choices=[("", "both parts"), ("train", "training"), ("validation", "validation")],
    )

    def __init__(self, version: DatasetVersion, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        statistics = (version.report.get("mapped") or {}).get("statistics") or {}
        rated_rows, rows = int(statistics.get("with_difficulty") or 0), int(statistics.get("rows") or 0)
        self._set_choices("difficulty", statistics, *([_NO_DIFFICULTY_LABEL] if 0 < rated_rows < rows else []))
        self._set_choices("tags", statistics)

    def _set_choices(self, name: str, statistics: dict[str, Any], *extra: str) -> None:
        frequent_names = (statistics.get(name) or {}).get("counts") or []
        requested_names = self.data.getlist(name) if hasattr(self.data, "getlist") else []
        # A requested value stays a choice even if the statistics list only the most frequent ones.
        names = list(dict.fromkeys([*(entry["name"] for entry in frequent_names), *extra, *requested_names]))
        choices = [(name, name) for name in names if frequent_names or requested_names]
        cast(forms.MultipleChoiceField, self.fields[name]).choices = choices

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        if not self.errors:
            try:
                self.filter = RowFilter.from_dict(self._as_dict(fields))
            except FilterError as error:
                self.add_error("at_most" if "characters" in str(error) else None, str(error))
        return fields

    @staticmethod
    def _as_dict(fields: dict[str, Any]) -> dict[str, Any]:
        conditions = {
            "text": fields["text"],
            "difficulty": [NO_DIFFICULTY if name == _NO_DIFFICULTY_LABEL else name for name in fields["difficulty"]],
            "tags": fields["tags"],
            "min_prompt_chars": fields["at_least"],
            "max_prompt_chars": fields["at_most"],
            "part": fields["part"],
        }
        return {name: value for name, value in conditions.items() if value not in ("", [], None)}

    @property
    def query(self) -> str:
        """The filter as a query string, or "" without a filter."""
        fields = self.cleaned_data
        return urlencode({name: value for name, value in fields.items() if value not in ("", None)}, doseq=True)


class DeriveForm(forms.Form):
    """Form of a derived version, whose rows are chosen by the filter or by number."""

    name = forms.CharField(
        label="Name of a new dataset",
        max_length=80,
        required=False,
        help_text="Leave empty to create the next version of this dataset.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    rows = forms.CharField(
        label="Row numbers",
        required=False,
        help_text="Numbers with any separators, or the JSON or JSON Lines of a run's difficulty map. Leave empty for "
        "all rows that pass the filter.",
        widget=forms.Textarea(attrs={"rows": 4, "class": "code", "spellcheck": "false"}),
    )
    rows_file = forms.FileField(
        label="Or a file with row numbers",
        required=False,
        allow_empty_file=True,
        help_text="For example, the export of a run's difficulty map.",
    )
    number = forms.IntegerField(
        label="Number of rows",
        required=False,
        min_value=1,
        max_value=limits.MAX_ROWS,
        help_text="Takes only this many of the rows chosen above. Leave empty for all of them.",
        widget=forms.NumberInput(attrs={"placeholder": "all"}),
    )
    which = forms.ChoiceField(
        label="Which rows",
        required=False,
        choices=[("first", "the first ones"), ("random", "at random")],
    )
    seed = forms.IntegerField(
        label="Seed",
        required=False,
        min_value=0,
        max_value=2**31 - 1,
        initial=SEED,
        help_text="For random rows: the same seed draws the same rows.",
    )
    tokens = forms.IntegerField(
        label="Prompts of at most",
        required=False,
        min_value=1,
        max_value=10_000_000,
        help_text="Tokens, including the chat template. Rows with longer prompts are left out. Empty for any length.",
        widget=forms.NumberInput(attrs={"placeholder": "any"}),
    )
    tokenizer = forms.ChoiceField(
        label="Tokens counted with", required=False, help_text="The tokenizer and chat template of the model to train."
    )

    def __init__(self, version: DatasetVersion, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        available_tokenizers = tokenizers()
        cast(forms.ChoiceField, self.fields["tokenizer"]).choices = [("", "no tokenizer"), *available_tokenizers]
        self.initial.setdefault("tokenizer", version.tokenizer)
        self.can_count = bool(available_tokenizers)
        self._rows = version.rows

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        if self.errors:
            return fields
        if fields["tokens"] and not fields["tokenizer"]:
            self.add_error("tokenizer", "Choose a tokenizer to count tokens with.")
        if (fields["number"] or 0) > self._rows:
            self.add_error("number", f"This version has {self._rows:,} rows. Leave it empty to take all of them.")
        file, origin = fields.get("rows_file"), "rows"
        pasted = fields["rows"]
        if file and not pasted.strip():
            pasted, origin = file.read().decode("utf-8", "replace"), "rows_file"
        try:
            fields["row_ids"] = row_numbers.read(pasted) if pasted.strip() else None
        except ValueError as error:
            self.add_error(origin, str(error))
        return fields

    def conditions(self) -> dict[str, Any]:
        """Return the conditions of a RowFilter that only derived versions may have."""
        fields = self.cleaned_data
        conditions: dict[str, Any] = {"max_prompt_tokens": fields["tokens"]}
        if fields["which"] != "random":
            return conditions | {"first": fields["number"]}
        seed = SEED if fields["seed"] is None else fields["seed"]
        return conditions | ({"random": fields["number"], "seed": seed} if fields["number"] else {})
