"""The form of a shared link: its end and its content."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils import timezone

DAYS = (1, 7, 30)
OWN = "date"


class ShareForm(forms.Form):
    lasts = forms.ChoiceField(label="The link ends", widget=forms.RadioSelect)
    date = forms.DateField(
        label="Last day",
        required=False,
        help_text="The link ends with this day, by the clock of UTC.",
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
    )
    with_completions = forms.BooleanField(
        label="Include completions",
        required=False,
        help_text="Shows the newest prompts and the model’s answers, with their rewards. They may hold private data.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        most = settings.SHARE_MAX_DAYS
        offered = [(str(days), f"in {days} day{'s' if days > 1 else ''}") for days in DAYS if days <= most]
        self.fields["lasts"].choices = [*offered, (OWN, "on a day of my choice")]  # type: ignore[attr-defined]
        self.fields["lasts"].initial = next((days for days, _ in offered if days == "7"), OWN)
        today = timezone.now().date()
        bounds = {"min": today.isoformat(), "max": (today + timedelta(days=most - 1)).isoformat()}
        self.fields["date"].widget.attrs.update(bounds)

    def clean(self) -> dict[str, Any]:
        super().clean()
        data: dict[str, Any] = self.cleaned_data
        now = timezone.now()
        if data.get("lasts") == OWN and "date" in data:
            try:
                data["until"] = _end_of(data["date"], now)
            except ValidationError as error:
                self.add_error("date", error)
        elif data.get("lasts"):
            data["until"] = now + timedelta(days=int(data["lasts"]))
        return data


def _end_of(day: Any, now: datetime) -> datetime:
    if day is None:
        raise ValidationError("Choose the last day.")
    end = datetime.combine(day, time.max, UTC)
    if end <= now:
        raise ValidationError("This day is over. Choose today or a later one.")
    if end > now + timedelta(days=settings.SHARE_MAX_DAYS):
        raise ValidationError(f"A link lasts {settings.SHARE_MAX_DAYS} days at most. Choose an earlier day.")
    return end
