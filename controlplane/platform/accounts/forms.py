"""The forms of the sign-in, password, users and API tokens pages."""

from typing import Any

from django import forms
from django.contrib.auth.forms import UsernameField
from django.contrib.auth.password_validation import validate_password

from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import ApiScope, User


def _password(label: str, kind: str, help_text: str = "") -> forms.CharField:
    widget = forms.PasswordInput(attrs={"autocomplete": kind})
    return forms.CharField(label=label, strip=False, max_length=4096, help_text=help_text, widget=widget)


class SignInForm(forms.Form):
    username = UsernameField(
        label="Name", max_length=150, widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "username"})
    )
    password = _password("Password", "current-password")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.data.get("username"):  # refused: the password has to be typed again
            del self.fields["username"].widget.attrs["autofocus"]
            self.fields["password"].widget.attrs["autofocus"] = True


class PasswordForm(forms.Form):
    """Form of a new password, entered twice. It requires the current one, except after a one-time link."""

    current = _password("Current password", "current-password")
    new = _password(
        "New password",
        "new-password",
        "At least 10 characters. You will be signed out everywhere else, and your API tokens will be revoked.",
    )
    again = _password("New password again", "new-password")

    def __init__(self, user: User, *args: Any, proved_by_link: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.user = user
        if proved_by_link or not user.has_usable_password():
            del self.fields["current"]

    def clean_current(self) -> str:
        current: str = self.cleaned_data["current"]
        if not self.user.check_password(current):
            raise forms.ValidationError("That is not your current password.", code="wrong")
        return current

    def clean_new(self) -> str:
        new: str = self.cleaned_data["new"]
        validate_password(new, self.user)
        return new

    def clean_again(self) -> str:
        again: str = self.cleaned_data["again"]
        if "new" in self.cleaned_data and again != self.cleaned_data["new"]:
            raise forms.ValidationError("The two passwords differ.")
        return again

    def save(self) -> None:
        self.user.set_password(self.cleaned_data["new"])
        self.user.save(update_fields=["password"])


class NewUserForm(forms.ModelForm):  # type: ignore[type-arg]  # subscriptable for the type checker only
    class Meta:
        model = User
        fields = ("username", "role")
        labels = {"username": "Name"}
        help_texts = {
            "username": "Letters, digits and @ . + - _",
            "role": "Viewers see everything; operators can also launch, stop and upload; admins can also manage users.",
        }


class UserForm(forms.ModelForm):  # type: ignore[type-arg]  # as above
    class Meta:
        model = User
        fields = ("role", "max_running", "max_queued")
        labels = {"max_running": "Maximum running runs", "max_queued": "Maximum queued runs"}


class ApiTokenForm(forms.Form):
    name = forms.CharField(
        label="Name",
        max_length=api_tokens.MAX_NAME_LENGTH,
        help_text="What the token is for, such as “laptop” or “nightly training”.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    scope = forms.ChoiceField(
        label="Scope",
        help_text="Read access includes completions and logs. A lower role for you also restricts your tokens.",
    )
    days = forms.TypedChoiceField(
        label="Valid for", coerce=int, initial=30, choices=[(days, f"{days} days") for days in api_tokens.DAYS]
    )

    def __init__(self, user: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        allowed_scopes = api_tokens.SCOPES[user.role]
        labels = {
            ApiScope.READ: "Read",
            ApiScope.OPERATE: "Read, launch, stop and upload",
            ApiScope.ADMIN: "Everything an admin can do",
        }
        self.fields["scope"].choices = [(scope, labels[scope]) for scope in ApiScope if scope in allowed_scopes]  # type: ignore[attr-defined]

    def clean_name(self) -> str:
        return " ".join(str(self.cleaned_data["name"]).split())
