"""The page for editing and trying a reward config, and the check of its custom code."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.catalogue.rewards import code_check, config_yaml
from controlplane.catalogue.rewards.forms import (
    NAME_TAKEN,
    ConfigForm,
    RewardEditor,
    editor_from,
    editor_of,
    fresh,
)
from controlplane.catalogue.rewards.library import groups
from controlplane.catalogue.rewards.models import RewardConfig, RewardVersion
from controlplane.catalogue.rewards.version_views import version_page
from controlplane.catalogue.versioned import parts_yaml
from controlplane.catalogue.versioned.parameter_forms import PARAM, PREFIX
from controlplane.catalogue.versioned.queries import item_for
from controlplane.platform import safe_yaml
from controlplane.platform.accounts.roles import admin_required, operator_required, person
from controlplane.platform.http.body_limit import reads_at_most
from controlplane.platform.safe_yaml import YamlRefused
from runs.pages.playground import completions_source
from runs.pages.playground.views import sample_context
from workers.rewards.entries import custom
from workers.rewards.library import LIBRARY

START = ("think_tags", "numeric_match")
"""The components of a new config."""
CHECKED = "catalogue/rewards/_code_check.html"


@operator_required
@require_http_methods(["GET", "POST"])
def new(request: HttpRequest) -> HttpResponse:
    """?function=KEY: begins with this one of the library."""
    if request.method == "POST":
        return _save(request, editor_from(request.POST), None)
    function = request.GET.get("function", "")
    may_use = function in LIBRARY and (not LIBRARY[function].admin_only or person(request).may_administer)
    start = [fresh(key, set()) for key in ((function,) if may_use else START) if key in LIBRARY]
    return editor_page(request, RewardEditor(ConfigForm(), start), None)


@require_http_methods(["GET", "POST"])
def edit(request: HttpRequest, config_id: int) -> HttpResponse:
    """The editor for users who may edit; the read-only composition for others and for archived configs."""
    if (
        request.method == "POST"
        and person(request).may_operate
        and not RewardConfig.objects.filter(pk=config_id).exists()
    ):
        return _gone(request)
    config = item_for(RewardConfig, request, config_id)
    if request.method == "POST":
        if not person(request).may_operate:
            raise PermissionDenied("This requires the operator role. Ask an admin of this installation for it.")
        return _save(request, editor_from(request.POST, config), config)
    newest = config.newest()
    if config.archived_at or not person(request).may_operate:
        return version_page(request, newest)
    return editor_page(request, editor_of(newest), config)


def _save(request: HttpRequest, editor: RewardEditor, config: RewardConfig | None) -> HttpResponse:
    before = config.name if config else ""
    if editor.is_valid() and _may_be_saved(request, editor, config):
        try:
            with transaction.atomic():
                saved, fresh_one = editor.save(person(request))
        except IntegrityError:  # the name was taken between the check and the save
            editor.config.add_error("name", NAME_TAKEN)
        else:
            messages.success(request, _saved_message(saved.number, saved.config.name, fresh_one, renamed=before))
            return redirect("reward_config", saved.config_id)
    if config:
        config.name = before  # the form has replaced it with the typed one
    return editor_page(request, editor, config, status=422)


def _gone(request: HttpRequest) -> HttpResponse:
    """The config was deleted during editing: keep the edits as a new config."""
    editor = editor_from(request.POST)
    editor.is_valid()
    editor.problem = (
        f"This config was deleted since you opened it. Save again to create a new one. {editor.problem}".strip()
    )
    return editor_page(request, editor, None, status=422)


def _saved_message(number: int, name: str, fresh_one: bool, *, renamed: str) -> str:
    if fresh_one and number == 1:
        return f"Saved {name}."
    if fresh_one:
        return f"Saved {name} as version {number}. Existing runs keep their version."
    return f"Saved {name}. It scores as before, so it is still version {number}."


def _may_be_saved(request: HttpRequest, editor: RewardEditor, config: RewardConfig | None) -> bool:
    if config and config.archived_at:
        editor.problem = "This config is archived. Unarchive it to change it."
        return False
    specs = [form.spec() for form in editor.components]
    refused = code_check.problems(specs, person(request), lambda: samples_of(request))
    for place, reason in refused.items():
        editor.components[place].refuse(reason)
    if config and not refused:
        newest = config.newest()
        based_on = editor.config.cleaned_data["based_on"]
        if based_on is not None and based_on != newest.number:
            by = newest.created_by.get_username() if newest.created_by else "Somebody"
            editor.problem = (
                f"{by} has saved version {newest.number} since you opened this, which was version {based_on}. "
                f"Save again to make version {newest.number + 1} of what you see; version {newest.number} stays."
            )
            editor.rebase(newest.number)
            return False
    return not refused


def editor_page(
    request: HttpRequest,
    editor: RewardEditor,
    config: RewardConfig | None,
    *,
    status: int = 200,
    imported: bool = False,
) -> HttpResponse:
    context = {
        "editor": editor,
        "form": editor.config,
        "kind": RewardVersion.kind,
        "item": config,
        "imported": imported,
        "version": config.newest() if config else None,
        "balance": editor.balance(),
        "groups": groups(person(request)),
        **sample_context(request, request.GET if request.method == "GET" else request.POST),
    }
    return render(request, "catalogue/rewards/edit.html", context, status=status)


@reads_at_most(parts_yaml.MOST_BYTES)
@operator_required
@require_http_methods(["GET", "HEAD", "POST"])
def import_(request: HttpRequest) -> HttpResponse:
    """Open an uploaded or pasted document in a new config's editor, with errors per field; nothing is saved yet."""
    if request.method != "POST":
        return _import_form(request)
    try:
        editor = config_yaml.read(safe_yaml.document(request, parts_yaml.MOST_BYTES))
    except YamlRefused as error:
        return _import_form(request, str(error))
    wrong = editor.problem or editor.config.errors or any(form.errors for form in editor.components)
    return editor_page(request, editor, None, status=422 if wrong else 200, imported=True)


def _import_form(request: HttpRequest, problem: str = "") -> HttpResponse:
    text = request.POST.get("text", "")
    most = parts_yaml.MOST_BYTES
    context = {"problem": problem, "text": text if len(text) <= most else "", "most": most}
    return render(request, "catalogue/rewards/import.html", context, status=422 if problem else 200)


@admin_required
@require_POST
def check(request: HttpRequest) -> HttpResponse:
    """Check a component of the editor's form (?of=its prefix) on the playground's completions."""
    prefix = request.GET.get("of", "")
    name = f"{prefix}-{PARAM}{code_check.PARAM}"
    if not PREFIX.fullmatch(prefix) or name not in request.POST:
        raise Http404
    source = request.POST[name].replace("\r\n", "\n")
    if len(source) > custom.LONGEST:
        return render(request, CHECKED, {"problem": f"It is longer than {custom.LONGEST} characters."})
    samples = samples_of(request)
    trial = code_check.check(source, samples)
    tried = samples or code_check.made_up()
    scored = [(completion.text, value) for (completion, _), value in zip(tried, trial.scores.values, strict=False)]
    context = {"problem": trial.problem, "trial": trial, "made_up": not samples, "scored": scored}
    return render(request, CHECKED, context)


def samples_of(request: HttpRequest) -> list[code_check.Sample]:
    """The playground's completions, as in the form; may be empty."""
    texts = request.POST.getlist("completion")
    if not any(text.strip() for text in texts):
        return []
    source = completions_source.read(request, request.POST)
    written = completions_source.written(source, texts, request.POST.getlist("of"))
    return [(completion, source.row) for completion in written.values()]
