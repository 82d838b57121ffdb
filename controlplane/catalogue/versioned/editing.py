"""The editor of an item: its own form and a form for each part, validated together and saved as a version.

Rows are added and removed in the browser, so each has a random prefix; the hidden `row` fields list them in order.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from django import forms
from django.db import transaction
from django.http import QueryDict

from controlplane.catalogue.versioned import saving
from controlplane.catalogue.versioned.models import Version
from controlplane.catalogue.versioned.parameter_forms import CONTROL, PREFIX, ParametersForm
from controlplane.catalogue.versioned.saving import Composition
from workers.contract.wire.documents import ContractError, from_dict

MAX_PARTS = 24
_MAX_ROWS = 4 * MAX_PARTS
"""Maximum number of rows to read; above MAX_PARTS, so that users with too many rows lose none."""
RowT = TypeVar("RowT", bound="PartForm")
SpecT = TypeVar("SpecT")


class ItemForm(forms.ModelForm):  # type: ignore[type-arg]  # subscriptable for the type checker only
    note = forms.CharField(
        label="What changes",
        max_length=200,
        required=False,
        help_text="Shown next to the version.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    based_on = forms.IntegerField(required=False, widget=forms.HiddenInput)

    @property
    def name_taken(self) -> str:
        """Error message for a name that another item has."""
        return str((self._meta.error_messages or {})["name"]["unique"])

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if CONTROL.search(name):
            raise forms.ValidationError("A name can't contain control characters.")
        return name


class PartForm(ParametersForm):
    """The form of a part: its name, and a field for each parameter of its function."""

    @property
    def shown_name(self) -> str:
        """Current value of the name, submitted or not."""
        return str(self["name"].value() or "")


@dataclass
class ItemEditor(Generic[RowT]):
    """The forms of an item and its parts, which are validated together."""

    form: ItemForm
    rows: list[RowT]
    problem: str = ""
    model: ClassVar[type[Version]]

    def is_valid(self) -> bool:
        are_valid = [*(form.is_valid() for form in self.item_forms()), *(row.is_valid() for row in self.rows)]
        self.check_names()
        if len(self.rows) > MAX_PARTS:
            parts = self.model.kind.parts
            self.problem = f"There are {len(self.rows)} {parts}; the limit is {MAX_PARTS}. Remove some."
        else:
            self.problem = self.composition_problem(all(are_valid)) or self.problem
        return all(are_valid) and not self.problem and not any(form.errors for form in self.rows)

    def item_forms(self) -> Sequence[forms.BaseForm]:
        return (self.form,)

    def check_names(self) -> None:
        """Add errors to rows that can't be combined."""
        raise NotImplementedError

    def composition_problem(self, valid: bool) -> str:
        """Explain why the rows can't be saved together; return "" if they can. `valid` says whether each of them is
        valid."""
        raise NotImplementedError

    def composition(self) -> Composition:
        """Return the composition that a valid editor describes."""
        raise NotImplementedError

    @property
    def wrong(self) -> list[tuple[str, str, str]]:
        """Fields with errors, as (id on the page, label, messages), to list at the top of a long page."""
        mistakes = []
        for form in self.item_forms():
            for name, errors in form.errors.items():
                field = form[name] if name in form.fields else None
                mistakes.append((field.id_for_label if field else "editor", str(field.label) if field else "", errors))
        for row in self.rows:
            title = row.shown_name or row.entry.title
            for name, errors in row.errors.items():
                label = f"{title}, {str(row[name].label).lower()}" if name in row.fields else title
                mistakes.append((str(row.prefix), label, errors))
        return [(element_id, label, " ".join(map(str, errors))) for element_id, label, errors in mistakes]

    def rebase(self, number: int) -> None:
        """Set the version on which the next save is based, once the user has been told about it."""
        self.form.data = {**dict(self.form.data.items()), "based_on": str(number)}

    def save(self, by: Any) -> tuple[Any, bool]:
        """Save the item, and return the version with this content and whether this call created it. Raises
        IntegrityError if the name is taken."""
        item, note = self.form.save(commit=False), self.form.cleaned_data["note"]
        if item.pk is None:
            columns = {"owner": by, "description": item.description, "note": note}
            return saving.make(self.model, item.name, self.composition(), **columns), True
        with transaction.atomic():
            item.save(update_fields=["name", "description"])
            return saving.save(self.model, item, self.composition(), by=by, note=note)


def rows_from(post: QueryDict, library: Mapping[str, Any], form: Callable[..., RowT]) -> list[RowT]:
    """Return the rows of a submitted form, without those of unknown functions."""
    prefixes = [prefix for prefix in dict.fromkeys(post.getlist("row")) if PREFIX.fullmatch(prefix)]
    return [
        form(library[key], post, prefix=prefix)
        for prefix in prefixes[:_MAX_ROWS]
        if (key := post.get(f"{prefix}-function", "")) in library
    ]


def rows_of(parts: Sequence[Any], spec: type[SpecT], row: Callable[[SpecT], RowT]) -> tuple[list[RowT], str]:
    """Return rows for a version's stored parts, and a sentence that names parts no longer in the library, or ""."""
    rows, lost_names = [], []
    for part in parts:
        try:
            rows.append(row(from_dict(spec, part)))
        except (ContractError, KeyError):
            lost_names.append(str(part.get("name") if isinstance(part, dict) else part))
    return rows, f"No longer in the library and removed when you save: {', '.join(lost_names)}." if lost_names else ""


def unused_name(key: str, used_names: Collection[str]) -> str:
    names = [key, *(f"{key}_{number}" for number in range(2, len(used_names) + 3))]
    return next(name for name in names if name not in used_names)
