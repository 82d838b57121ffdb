"""Hourly prices of a host's GPUs: the admins' form, and the formatting of amounts."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.validators import RegexValidator

from controlplane.catalogue.hardware.models import Host

MAX_PRICE = 10_000
"""Maximum price per GPU-hour; a higher one is assumed to be a typo."""


@dataclass(frozen=True)
class Money:
    amount: float
    currency: str

    def __str__(self) -> str:
        """Format the amount as $12.30 or 1,204 CHF: symbols precede the number, codes follow it."""
        number = f"{self.amount:,.2f}" if self.amount < 1000 else f"{self.amount:,.0f}"
        return f"{number} {self.currency}" if self.currency[:1].isalpha() else f"{self.currency}{number}"

    def __mul__(self, factor: float) -> "Money":
        return Money(self.amount * factor, self.currency)


def gpu_hour(host: Host | None) -> Money | None:
    """Return a host's price per GPU-hour, or None if no admin has set one."""
    if host is None or host.gpu_hour_price is None:
        return None
    return Money(host.gpu_hour_price, host.currency)


def total(amounts: Iterable[Money]) -> str:
    """Sum the amounts of each currency, and format them as $3.00 + 2.50 CHF."""
    sums_by_currency: dict[str, float] = {}
    for money in amounts:
        sums_by_currency[money.currency] = sums_by_currency.get(money.currency, 0.0) + money.amount
    return " + ".join(str(Money(amount, currency)) for currency, amount in sums_by_currency.items())


class PriceForm(forms.ModelForm):  # type: ignore[type-arg]  # subscriptable for the type checker only
    gpu_hour_price = forms.FloatField(
        label="Price of a GPU-hour",
        required=False,
        min_value=0,
        max_value=MAX_PRICE,
        help_text="Leave empty to show no costs.",
        widget=forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"}),
    )
    currency = forms.CharField(
        required=False,
        max_length=Host.CURRENCY_LENGTH,
        help_text="A symbol or a code, such as $, € or CHF.",
        validators=[RegexValidator(r"^[^\d\s.,+-]*$", "Enter a symbol or a code without digits, such as $, € or CHF.")],
        widget=forms.TextInput(attrs={"autocomplete": "off", "list": "currencies"}),
    )

    class Meta:
        model = Host
        fields = ("gpu_hour_price", "currency")

    def clean(self) -> dict[str, Any]:
        values = super().clean() or self.cleaned_data
        if values.get("gpu_hour_price") is not None and values.get("currency") == "":
            self.add_error("currency", "Enter the currency of the price.")
        return values
