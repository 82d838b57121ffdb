"""The form of a secret. The key is never sent back to the page: an empty field keeps the stored one."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from controlplane.platform import sealing
from controlplane.platform.accounts.models import HUB_TOKEN, Secret, User
from controlplane.platform.http.addresses import check_url, is_inside
from workers.contract.wire.artifacts import STORE, store_of

MAX_KEY_LENGTH = 4096
RESERVED = {HUB_TOKEN: "the model hub's token", STORE: "the store for checkpoints"}
"""Names reserved for secrets that aren't endpoints, with their purpose."""
NAMES: dict[str, str] = {Secret.Kind.HUB: HUB_TOKEN, Secret.Kind.STORE: STORE}
"""Names by kind, for the kinds that have only one secret."""


def _by_kind(*parts: tuple[str, str]) -> SafeString:
    """Build a help text from parts for certain kinds; the page shows only those for the chosen kind."""
    return format_html_join(" ", '<span data-kinds="{}">{}</span>', parts)


class SecretForm(forms.ModelForm):  # type: ignore[type-arg]  # subscriptable for the type checker only
    key = forms.CharField(
        max_length=MAX_KEY_LENGTH,
        required=False,
        strip=True,
        help_text=_by_kind(
            ("endpoint engine", "Leave empty for a server without a key."),
            ("store", "The access key's id and its secret, as ID:SECRET."),
            ("endpoint hub store engine", "Stored encrypted and never shown again."),
        ),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password", "class": "code"}),
    )

    class Meta:
        model = Secret
        fields = ("name", "kind", "address", "private_too", "key")
        labels = {"private_too": "The server may be inside our network"}
        help_texts = {
            "name": _by_kind(
                ("endpoint", "Capital letters, digits and _. Rewards, environments and runs refer to it by this name."),
                ("hub", f"Leave empty: the model hub's token is called {HUB_TOKEN}."),
                ("store", f"Leave empty: the store for checkpoints is called {STORE}."),
                ("engine", "Capital letters, digits and _. Sources of machines refer to it by this name."),
            ),
            "address": _by_kind(
                ("endpoint", "The base URL of requests, such as https://api.example.com/v1 or https://api.wandb.ai."),
                ("store", "https://server/bucket/prefix?region=name."),
                ("engine", "SkyPilot's API server, without a path."),
                ("endpoint store engine", "The key is sent only there."),
            ),
            "private_too": "Allows names that resolve to private or loopback addresses, and plain http to those.",
        }
        error_messages = {
            "name": {"unique": "A secret with this name already exists. Change that one, or choose another name."}
        }
        widgets = {
            "name": forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "class": "code"}),
            "address": forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "class": "code"}),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._has_no_key = False
        self.fields["name"].required = False  # for kinds that have only one
        if self.instance.pk:
            self._has_no_key = _has_no_key(self.instance)
            self.fields["key"].help_text = "Leave empty to keep the current key. A new address requires the key again."

    def clean_name(self) -> str:
        return str(self.cleaned_data["name"]).strip()

    def clean(self) -> dict[str, Any]:
        super().clean()
        data: dict[str, Any] = self.cleaned_data
        kind = data.get("kind")
        if "name" in data and not data["name"]:
            data["name"] = NAMES.get(str(kind), "")
            if not data["name"]:
                self.add_error("name", "Enter a name.")
        name = data.get("name")
        data["address"] = address = str(data.get("address") or "").strip().rstrip("/")
        key = str(data.get("key") or "")
        if kind == Secret.Kind.HUB:
            self._clean_token(name, key)
        elif kind == Secret.Kind.STORE:
            self._clean_store(name, address, key)
        elif kind in (Secret.Kind.ENDPOINT, Secret.Kind.ENGINE):
            if name in RESERVED:
                self.add_error("name", f"{name} is the name of {RESERVED[name]}.")
            self._clean_address(address)
        if not key.isascii() or not key.isprintable() or " " in key:
            self.add_error("key", "Enter a key of ASCII letters, digits and symbols, without spaces.")
        self._clean_kept(kind, key)
        return data

    def _clean_token(self, name: str | None, key: str) -> None:
        if name and name != HUB_TOKEN:
            self.add_error("name", f"The model hub's token is called {HUB_TOKEN}.")
        if not key and not self.instance.pk:
            self.add_error("key", "Enter the token.")
        self.cleaned_data.update(address="", private_too=False)

    def _clean_store(self, name: str | None, address: str, key: str) -> None:
        if name and name != STORE:
            self.add_error("name", f"The store for checkpoints is called {STORE}.")
        try:
            store_of(address, key if key or not self.instance.pk else "ID:SECRET")
        except ValueError as error:
            self.add_error("key" if "ID:SECRET" in str(error) else "address", str(error))
        self._clean_address(address.partition("?")[0])

    def _clean_address(self, address: str) -> None:
        if not address:
            self.add_error("address", "Enter the server's address.")
            return
        private_too = bool(self.cleaned_data.get("private_too")) or is_inside(address)
        self.cleaned_data["private_too"] = private_too
        try:
            check_url(address, private_too=private_too)
            if set(address) & set("?#"):
                raise ValidationError("Remove the question mark or # and everything after it.")
        except ValidationError as error:
            self.add_error("address", error)

    def _clean_kept(self, kind: str | None, key: str) -> None:
        if not self.instance.pk or key or self._has_no_key:
            return
        if (self.initial["kind"], self.initial["address"]) != (kind, self.cleaned_data["address"]):
            self.add_error("key", "Enter the key again to send it to another address.")

    def ask_for_key_again(self) -> None:
        """Ask for the key again if the form has other errors, because the key isn't sent back to the page."""
        if self.is_bound and self.data.get("key") and not self.has_error("key"):
            self.add_error("key", "Enter the key again: it is not sent back to this page.")

    def save_by(self, person: User) -> Secret:
        secret: Secret = self.save(commit=False)
        key = self.cleaned_data["key"]
        if key or not secret.pk or self._has_no_key:
            secret.lock_in(key)
            secret.updated_at = timezone.now()
        secret.by = person
        secret.save()
        return secret


def _has_no_key(secret: Secret) -> bool:
    try:
        return not secret.key()
    except sealing.CannotOpen:
        return False
