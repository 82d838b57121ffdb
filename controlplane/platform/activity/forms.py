"""The filters of the Events page."""

from typing import Any

from django import forms

from controlplane.platform.accounts.models import User
from controlplane.platform.activity import queries
from controlplane.platform.activity.models import FOR_ADMINS, KINDS
from controlplane.platform.activity.queries import ActFilter

DAY = forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")


class ActivityFilterForm(forms.Form):
    """The filters as a form. An invalid field shows its error and is ignored as a filter."""

    q = forms.CharField(
        required=False,
        max_length=100,
        label="Search events",
        widget=forms.TextInput(attrs={"type": "search", "autocomplete": "off", "data-search": ""}),
    )
    by = forms.ChoiceField(required=False, label="Person")
    kind = forms.ChoiceField(required=False, label="Kind")
    since = forms.DateField(required=False, label="From", widget=DAY)
    until = forms.DateField(required=False, label="To", widget=DAY)
    key = forms.CharField(required=False, max_length=40, widget=forms.HiddenInput)

    def __init__(self, user: User, data: Any) -> None:
        super().__init__(data)
        hidden_kinds = FOR_ADMINS if not user.may_administer else ()
        kinds = [(name, kind.label) for name, kind in KINDS.items() if name not in hidden_kinds]
        people = [(name, name) for name in queries.people(user)]
        self.fields["kind"] = forms.ChoiceField(required=False, label="Kind", choices=[("", "Everything"), *kinds])
        self.fields["by"] = forms.ChoiceField(required=False, label="Person", choices=[("", "Anyone"), *people])

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        since, until = values.get("since"), values.get("until")
        if since and until and until < since:
            self.add_error("until", "This day is before “From”. Choose a later day.")
        return values

    @property
    def narrowed(self) -> bool:
        """True if a filter is set in addition to the search."""
        return any(self.data.get(name) for name in ("by", "kind", "since", "until"))

    def filters(self) -> ActFilter:
        self.is_valid()
        return ActFilter(**{name: value for name, value in self.cleaned_data.items() if value})
