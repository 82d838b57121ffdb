"""The form that pushes a model to the hub, with its card to edit first. Admins only."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from controlplane.platform.accounts import vault
from controlplane.platform.accounts.roles import admin_required, person
from controlplane.platform.http.form_pages import form_page
from runs.engine.artifacts import saved_models as catalogue
from runs.engine.jobs import model_jobs
from runs.engine.scheduling.limits import QueueFull
from runs.pages.model_pages import card
from workers.contract.run.jobs import PushSettings
from workers.contract.wire.documents import ContractError


class PushForm(forms.Form):
    repository = forms.CharField(
        max_length=200,
        help_text="Its name on the hub. The owner is the stored token's account, or one of its organizations.",
        widget=forms.TextInput(
            attrs={"placeholder": "owner/name", "autocomplete": "off", "spellcheck": "false", "class": "code"}
        ),
    )
    private = forms.BooleanField(
        required=False, label="Private", help_text="Only its owner sees a repository that this push creates."
    )
    add = forms.BooleanField(
        required=False,
        label="Add to the existing repository",
        help_text="Replaces files with the same names and keeps the others. Otherwise nothing existing is touched.",
    )
    card = forms.CharField(
        label="Model card",
        strip=False,
        help_text="README.md, as the hub shows it. Written from what is known of the run: read it before it is public.",
        widget=forms.Textarea(attrs={"rows": 24, "spellcheck": "false", "class": "code"}),
    )

    def clean_repository(self) -> str:
        name = str(self.cleaned_data["repository"])
        if problem := model_jobs.repository_problem(name):
            raise forms.ValidationError(problem)
        return name

    def clean_card(self) -> str:
        text = str(self.cleaned_data["card"]).replace("\r\n", "\n")
        size = len(text.encode("utf-8", "replace"))
        if size > model_jobs.MAX_CARD_BYTES:
            raise forms.ValidationError(
                f"It has {size:,} bytes; a card may have {model_jobs.MAX_CARD_BYTES:,}. Shorten it."
            )
        return text


@require_http_methods(["GET", "POST"])
@admin_required
def push(request: HttpRequest, event_id: int) -> HttpResponseBase:
    model = catalogue.model_for(request, event_id)
    checkpoint = model.checkpoint
    if request.method == "GET":
        form = PushForm(initial={"private": True, "card": card.text(checkpoint)})
    else:
        form = PushForm(request.POST)
        if form.is_valid():
            try:
                settings = PushSettings(base=card.base_name(checkpoint), **form.cleaned_data)
                model_jobs.push(checkpoint, person(request), settings)
                return redirect("model", event_id)
            except (ContractError, QueueFull) as error:
                form.add_error(None, f"This can't be pushed: {error}")
    context = {"model": model, "checkpoint": checkpoint, "form": form, "token_problem": vault.hub_token_problem()}
    return form_page(request, "pages/model_pages/push.html", context)
