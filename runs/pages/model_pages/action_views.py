"""Actions on a model: merge, convert, benchmark, download, delete, and push to the hub with an editable model card."""

from collections.abc import Callable

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.platform.accounts import vault
from controlplane.platform.accounts.roles import admin_required, operator_required, person
from controlplane.platform.http.form_pages import form_page
from controlplane.platform.http.streams import resumable_response
from runs.engine import deletions
from runs.engine.artifacts import saved_models as catalogue
from runs.engine.checkpoints import Checkpoint
from runs.engine.jobs import archives, model_jobs
from runs.engine.scheduling.limits import QueueFull
from runs.pages.model_pages import card
from workers.contract.run.jobs import ARCHIVE, PushSettings
from workers.contract.wire.documents import ContractError


class PushForm(forms.Form):
    repository = forms.CharField(
        max_length=200,
        help_text="Name on the hub. The owner must be the stored token's account or one of its organizations.",
        widget=forms.TextInput(
            attrs={"placeholder": "owner/name", "autocomplete": "off", "spellcheck": "false", "class": "code"}
        ),
    )
    private = forms.BooleanField(
        required=False, label="Private", help_text="If this push creates the repository, only its owner can see it."
    )
    add = forms.BooleanField(
        required=False,
        label="Add to the existing repository",
        help_text="Replaces files with the same names and keeps the others. If off, no existing repository is changed.",
    )
    card = forms.CharField(
        label="Model card",
        strip=False,
        help_text="The README.md that the hub shows, generated from the run. Read it before it becomes public.",
        widget=forms.Textarea(attrs={"rows": 24, "spellcheck": "false", "class": "code"}),
    )

    def clean_repository(self) -> str:
        name = str(self.cleaned_data["repository"])
        if problem := model_jobs.repository_problem(name):
            raise forms.ValidationError(problem)
        return name

    def clean_card(self) -> str:
        card_text = str(self.cleaned_data["card"]).replace("\r\n", "\n")
        size = len(card_text.encode("utf-8", "replace"))
        if size > model_jobs.MAX_CARD_BYTES:
            raise forms.ValidationError(
                f"The card has {size:,} bytes; the limit is {model_jobs.MAX_CARD_BYTES:,}. Shorten it."
            )
        return card_text


@require_POST
@operator_required
def merge(request: HttpRequest, event_id: int) -> HttpResponseBase:
    dtype = request.POST.get("dtype", "")
    return _start(request, event_id, "merged", lambda model: model_jobs.merge(model, person(request), dtype=dtype))


@require_POST
@operator_required
def convert(request: HttpRequest, event_id: int) -> HttpResponseBase:
    kind = request.POST.get("type", "")
    return _start(request, event_id, "converted", lambda model: model_jobs.convert(model, person(request), kind=kind))


@require_POST
@operator_required
def archive(request: HttpRequest, event_id: int) -> HttpResponseBase:
    def start(model: Checkpoint) -> object:
        return archives.start(model, person(request), card=card.text(model))

    return _start(request, event_id, "downloaded", start)


@require_POST
@operator_required
def benchmark(request: HttpRequest, event_id: int) -> HttpResponseBase:
    examples, tasks = request.POST.get("limit", "").strip(), request.POST.getlist("tasks")
    limit = int(examples) if examples.isdecimal() and len(examples) < 10 else -1

    def start(model: Checkpoint) -> object:
        return model_jobs.benchmark(model, person(request), tasks=tasks, limit=limit)

    return _start(request, event_id, "benchmarked", start)


@require_POST
@operator_required
def delete(request: HttpRequest, event_id: int) -> HttpResponseBase:
    model = catalogue.model_for(request, event_id)
    try:
        deletions.request(model.checkpoint, person(request))
    except deletions.CheckpointNotDeletable as error:
        messages.error(request, f"The model wasn't deleted: {error}")
    return redirect("model", event_id)


@require_safe
def download(request: HttpRequest, event_id: int, job_id: str) -> HttpResponseBase:
    """Send the archive of a download job; interrupted downloads can be resumed."""
    model = catalogue.model_for(request, event_id)
    job = model.run.jobs.filter(pk=job_id, kind=ARCHIVE, spec__start_from=model.checkpoint.folder).first()
    stored_archive = archives.find(job) if job else None
    if job is None or stored_archive is None:
        raise Http404("This archive no longer exists. Start the download again on the model's page.")
    name = f"{archives.name_of(model.checkpoint)}.tar"
    etag = f'"{job.pk}-{stored_archive.size}"'
    return resumable_response(request, stored_archive.path.open("rb"), "application/x-tar", save_as=name, etag=etag)


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


def _start(request: HttpRequest, event_id: int, verb: str, start: Callable[[Checkpoint], object]) -> HttpResponseBase:
    """Start a job on a model, then redirect to its page. `verb` is a past participle for the error message."""
    model = catalogue.model_for(request, event_id)
    try:
        start(model.checkpoint)
    except (ContractError, QueueFull) as error:
        messages.error(request, f"This can't be {verb}: {error}")
    return redirect("model", event_id)
