"""Forms of the pages, filled from JSON. Fields that aren't sent have the values that the page shows initially."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS
from django.forms import BaseForm
from django.http import QueryDict

from runs.api.access import Problem
from runs.launch.new_run import prefill
from runs.launch.new_run.spec_values import form_value

F = TypeVar("F", bound=BaseForm)


def fill(
    form_class: Callable[..., F], values: Mapping[str, Any], *, where: str = "", first: BaseForm | None = None
) -> F:
    """Fill a form with values and return it; None and False leave a field empty. Raises Problem for an unknown field or
    a value that the form rejects. `first` is the form as its page shows it initially; the default is `form_class()`.
    `where` is the key of the body that contains the values, or "" if the whole body does."""
    first = first or form_class()
    if unknown_names := set(values) - set(first.fields):
        fix = f"Use: {', '.join(first.fields)}."
        name = min(unknown_names)[:80]
        raise Problem(422, f"There is no field {name}.", where=where or name, fix=fix)
    data = QueryDict(mutable=True)
    for name, value in {**_first_options(first), **prefill.as_sent(first), **values}.items():
        if value is not None and value is not False:
            data.setlist(name, list(map(_text, value if isinstance(value, list | tuple) else [value])))
    return validate(form_class(data), where=where)


def validate(form: F, *, where: str = "") -> F:
    """Return the form if it is valid, otherwise raise a Problem with its first error."""
    if form.is_valid():
        return form
    field, errors = next(iter(form.errors.items()))
    path = [part for part in (where, "" if field == NON_FIELD_ERRORS else str(field)) if part]
    raise Problem(422, " ".join(map(str, errors)), where=".".join(path) or "body")


def _first_options(form: BaseForm) -> dict[str, Any]:
    """Return the first option of each list, which browsers send unless the user chooses another."""
    lists = {name: field for name, field in form.fields.items() if type(field) is forms.ChoiceField}
    options = {name: cast("Iterable[tuple[Any, Any]]", field.choices) for name, field in lists.items()}
    return {name: next((value for value, _ in pairs), None) for name, pairs in options.items()}


def _text(value: Any) -> str:
    return str(getattr(value, "pk", "on" if value is True else form_value(value)))
