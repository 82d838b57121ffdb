"""The form of an alert target. The stored address is never sent to the page; an empty field keeps it."""

from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from controlplane.platform import sealing
from controlplane.platform.accounts.models import User
from controlplane.platform.http.addresses import check_url
from runs.engine.alerts.models import AlertTarget, TargetKind, Topic

MAX_ADDRESSES = 10
MAX_ADDRESS_CHARS = 2000


class TargetForm(forms.ModelForm):  # type: ignore[type-arg]  # subscriptable for the type checker only
    address = forms.CharField(
        max_length=MAX_ADDRESS_CHARS,
        help_text="The https address of a webhook (Slack, Mattermost, Discord with /slack at its end, …), or mail "
        "addresses separated by commas. Addresses are stored encrypted and shown masked.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "class": "code"}),
    )
    wants = forms.MultipleChoiceField(
        label="Events",
        choices=Topic.choices,
        widget=forms.CheckboxSelectMultiple,
        initial=[Topic.BAD, Topic.FAILED],
        error_messages={"required": "Choose at least one."},
    )

    links_to = forms.URLField(
        label="Public URL",
        max_length=300,
        assume_scheme="https",
        help_text="The address at which readers of the alerts can open this installation.",
    )

    class Meta:
        model = AlertTarget
        fields = ("name", "kind", "address", "wants", "links_to", "private_too", "enabled")
        labels = {
            "kind": "Sent by",
            "private_too": "The webhook may be inside our network",
            "enabled": "Enabled",
        }
        help_texts = {
            "private_too": "Allows private and loopback addresses, and plain http there.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            self.fields["address"].required = False
            self.fields["address"].help_text = f"Currently {self.instance.shown}. Leave this empty to keep it."
        if not settings.EMAIL_HOST:
            self.fields["kind"].help_text = "Mail needs a mail server, and CONTROLPLANE_SMTP_HOST isn’t set."

    def clean(self) -> dict[str, Any]:
        super().clean()
        data: dict[str, Any] = self.cleaned_data
        kind, address = data.get("kind"), str(data.get("address") or "").strip()
        try:
            if kind and address:
                (_check_mails if kind == TargetKind.MAIL else check_url)(
                    address, private_too=bool(data.get("private_too"))
                )
                data["address"] = address
            elif kind and self.instance.pk and self.initial.get("kind") != kind:
                raise ValidationError("You changed how alerts are sent. Enter a new address.")
        except ValidationError as error:
            self.add_error("address", error)
        return data

    def save_by(self, person: User) -> AlertTarget:
        target: AlertTarget = self.save(commit=False)
        if address := self.cleaned_data["address"]:
            target.sealed = sealing.seal(address)
            target.shown = mask(target.kind, address)
        target.by = person
        target.save()
        return target


def mask(kind: str, address: str) -> str:
    """Mask an address so that people can recognise it but not use it."""
    if kind == TargetKind.MAIL:
        mails = (mail.strip().rpartition("@") for mail in address.split(","))
        return ", ".join(f"{name[:1]}…@{host}" for name, _, host in mails)[:200]
    url = urlsplit(address)
    tail = address[-4:] if len(url.path + url.query) > 16 else ""
    return f"{url.scheme}://{url.netloc}/…{tail}"[:200]


def _check_mails(address: str, *, private_too: bool) -> None:
    mails = address.split(",")
    if len(mails) > MAX_ADDRESSES:
        raise ValidationError(f"Enter at most {MAX_ADDRESSES} addresses. For more, use a mailing list.")
    for mail in mails:
        validate_email(mail.strip())
