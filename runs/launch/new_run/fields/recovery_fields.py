"""The fields of a run's best checkpoint, its automatic resumes, and what counts as a hang."""

from __future__ import annotations

from typing import Any

from django import forms

from workers.contract.reports.lines import LONGEST_NAME
from workers.contract.run.spec import HangSpec, RecoverySpec

RECOVERY_FIELDS = ("keep_best", "auto_resumes", "resume_pause_s", "hang_after", "hang_stop")


class RecoveryFields(forms.Form):
    keep_best = forms.CharField(
        label="Keep the best by",
        required=False,
        max_length=LONGEST_NAME,
        help_text="A metric, such as reward or eval_reward: its best checkpoint is kept as well. Leave empty to keep "
        "only the newest.",
        widget=forms.TextInput(attrs={"list": "known-metrics", "class": "code", "spellcheck": "false"}),
    )
    auto_resumes = forms.IntegerField(
        label="Automatic resumes",
        required=False,
        min_value=0,
        max_value=100,
        initial=0,
        help_text="How often the run may resume by itself after its host, supervisor or vLLM server died, or after a "
        "hang. 0: never.",
    )
    resume_pause_s = forms.IntegerField(
        label="Pause before a resume",
        required=False,
        min_value=0,
        max_value=86_400,
        initial=RecoverySpec().pause_s,
        help_text="Seconds before the first automatic resume; each later pause is twice as long.",
    )
    hang_after = forms.FloatField(
        label="Hang after",
        required=False,
        min_value=2,
        max_value=10_000,
        initial=HangSpec().after,
        help_text="No step for this many times the usual duration is a hang: reported with who waits for whom.",
    )
    hang_stop = forms.BooleanField(
        label="End a run that hangs",
        required=False,
        help_text="With automatic resumes it goes on from its last checkpoint. Off: only reported.",
    )

    @property
    def recovery(self) -> RecoverySpec:
        """Of the valid values."""
        values: dict[str, Any] = getattr(self, "cleaned_data", {})
        pause_s = values.get("resume_pause_s")
        return RecoverySpec(values.get("auto_resumes") or 0, RecoverySpec().pause_s if pause_s is None else pause_s)

    @property
    def hang(self) -> HangSpec:
        values: dict[str, Any] = getattr(self, "cleaned_data", {})
        return HangSpec(float(values.get("hang_after") or HangSpec().after), bool(values.get("hang_stop")))
