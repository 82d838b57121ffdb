"""The forms that create a corpus from columns or a text file, and the box to try a query."""

from django import forms
from django.http import QueryDict

from controlplane.catalogue.datasets.corpora import plain_text
from controlplane.catalogue.datasets.corpora.building import columns_of
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.pages.forms import CONTROL, NAME_LENGTH
from workers.environments.search import MAX_QUERY_LENGTH

_TEXT_COLUMNS, _TITLE_COLUMNS = (
    ("text", "body", "content", "contents", "passage", "document", "article"),
    ("title", "name", "heading"),
)


class NamedForm(forms.Form):
    name = forms.CharField(
        max_length=NAME_LENGTH,
        help_text="If a corpus of this name exists, this becomes its next version.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    about = forms.CharField(
        label="About",
        max_length=200,
        required=False,
        help_text="What the documents are, such as “articles on European rivers”. The model reads this.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )

    def clean_name(self) -> str:
        return _one_line(self.cleaned_data["name"])

    def clean_about(self) -> str:
        return _one_line(self.cleaned_data["about"])


class TextForm(NamedForm):
    file = forms.FileField(
        label="Text file",
        help_text="A .txt or .md file. Each paragraph becomes a document; blank lines separate paragraphs.",
        widget=forms.ClearableFileInput(attrs={"accept": ",".join(plain_text.SUFFIXES)}),
        error_messages={"required": "Choose a file.", "empty": "The file is empty."},
    )
    field_order = ("file", "name", "about")


class CorpusForm(NamedForm):
    text = forms.MultipleChoiceField(
        label="Text",
        widget=forms.CheckboxSelectMultiple,
        help_text="The columns to search. If you choose several, their texts are joined.",
        error_messages={"required": "Choose at least one column."},
    )
    title = forms.ChoiceField(required=False, help_text="Shown above the text in results, and also searched.")

    def __init__(self, version: DatasetVersion, data: QueryDict | None = None) -> None:
        names = columns_of(version)
        text, title = _first(_TEXT_COLUMNS, names), _first(_TITLE_COLUMNS, names)
        initial = {"name": version.dataset.name, "text": [text], "title": title}
        super().__init__(data, initial=initial)
        columns = [(name, name) for name in names]
        self.fields["text"].choices = columns  # type: ignore[attr-defined]
        self.fields["title"].choices = [("", "None"), *columns]  # type: ignore[attr-defined]


class QueryForm(forms.Form):
    q = forms.CharField(
        label="Query",
        max_length=MAX_QUERY_LENGTH,
        widget=forms.TextInput(attrs={"autocomplete": "off", "type": "search", "placeholder": "A few words"}),
    )


def _first(candidates: tuple[str, ...], names: list[str]) -> str:
    lower = {name.lower(): name for name in reversed(names)}
    return next((lower[name] for name in candidates if name in lower), "")


def _one_line(value: str) -> str:
    if CONTROL.search(value):
        raise forms.ValidationError("Control characters are not allowed.")
    return value
