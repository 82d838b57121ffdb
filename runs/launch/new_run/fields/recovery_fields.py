"""The fields of a run's best checkpoint, its automatic resumes, and what counts as a hang."""

from __future__ import annotations

from django import forms

from runs.launch.new_run.fields.choice_fields import bounds
from workers.contract.run.settings import names_below, section_of
from workers.contract.run.spec import HangSpec, RecoverySpec

RECOVERY_FIELDS = ("keep_best", *names_below("recovery"), *names_below("hang"))


class RecoveryFields(forms.Form):
    keep_best = forms.CharField(
        label="Keep the best by",
        required=False,
        **bounds("keep_best"),
        help_text="A metric, such as reward or eval_reward: its best checkpoint is kept as well. Leave empty to keep "
        "only the newest.",
        widget=forms.TextInput(attrs={"list": "known-metrics", "class": "code", "spellcheck": "false"}),
    )
    auto_resumes = forms.IntegerField(
        label="Automatic resumes",
        required=False,
        **bounds("auto_resumes"),
        initial=0,
        help_text="How often the run may resume by itself after its host, supervisor or vLLM server died, or after a "
        "hang. 0: never.",
    )
    resume_pause_s = forms.IntegerField(
        label="Pause before a resume",
        required=False,
        **bounds("resume_pause_s"),
        initial=RecoverySpec().pause_s,
        help_text="Seconds before the first automatic resume; each later pause is twice as long.",
    )
    hang_after = forms.FloatField(
        label="Hang after",
        required=False,
        **bounds("hang_after"),
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
        recovery: RecoverySpec = section_of("recovery", getattr(self, "cleaned_data", {}))
        return recovery

    @property
    def hang(self) -> HangSpec:
        hang: HangSpec = section_of("hang", getattr(self, "cleaned_data", {}))
        return hang
