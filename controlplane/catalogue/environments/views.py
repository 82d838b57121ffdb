"""The editor of an environment, and what it asks for."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from controlplane.catalogue.environments import config_yaml, showing
from controlplane.catalogue.environments.forms import (
    NAME_TAKEN,
    EnvironmentEditor,
    editor_from,
    editor_of,
    fresh,
    new_editor,
    parts_from,
)
from controlplane.catalogue.environments.models import Environment, EnvironmentVersion
from controlplane.catalogue.environments.version_views import version_page
from controlplane.catalogue.versioned import parts_yaml, permissions
from controlplane.catalogue.versioned.queries import item_for
from controlplane.platform import safe_yaml
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.body_limit import reads_at_most
from controlplane.platform.safe_yaml import YamlRefused
from workers.environments.library import LIBRARY


@operator_required
@require_GET
def part(request: HttpRequest) -> HttpResponse:
    """A new row of the editor for an entry of the library."""
    key = request.GET.get("function", "")
    entry = LIBRARY.get(key)
    if entry is None or (entry.admin_only and not person(request).may_administer):
        return HttpResponse("That entry doesn't exist, or you may not add it.", status=404, content_type="text/plain")
    used = {str(value) for name, value in request.GET.items() if name.endswith("-name")}
    context = {"component": fresh(key, used), "place": len(request.GET.getlist("row")), "open": True}
    return render(request, "catalogue/environments/_part.html", context)


@operator_required
@require_POST
def preview(request: HttpRequest) -> HttpResponse:
    """The tools of the editor's form as the model sees them. The page asks by itself (`unasked`) after each change:
    parts that start the sandbox or call a server are then left for the button."""
    problems, specs = [], []
    for form in parts_from(request.POST):
        if not form.is_valid():
            problems.append(
                (form.shown_name or form.of.title, [text for each in form.errors.values() for text in each])
            )
        elif not permissions.may_use(EnvironmentVersion, person(request), form.spec()):
            problems.append((form.shown_name, [permissions.refused(EnvironmentVersion)]))
        else:
            specs.append(form.spec())
    waits = showing.costly(specs) if "unasked" in request.GET else []
    context = {"problems": problems, "parts": len(specs), "waits": waits}
    if not waits:
        context["preview"] = showing.preview(specs)
    return render(request, "catalogue/environments/_preview.html", context)


@operator_required
@require_http_methods(["GET", "POST"])
def new(request: HttpRequest) -> HttpResponse:
    if request.method == "POST":
        return _save(request, editor_from(request.POST), None)
    return editor_page(request, new_editor(), None)


@require_http_methods(["GET", "POST"])
def edit(request: HttpRequest, environment_id: int) -> HttpResponse:
    """The editor for users who may edit; the read-only page for others and for archived environments."""
    may = person(request).may_operate
    if request.method == "POST" and may and not Environment.objects.filter(pk=environment_id).exists():
        editor = editor_from(request.POST)
        editor.is_valid()
        gone = "This environment was deleted since you opened it. Save again to create a new one."
        editor.problem = f"{gone} {editor.problem}".strip()
        return editor_page(request, editor, None, status=422)
    environment = item_for(Environment, request, environment_id)
    if request.method == "POST":
        if not may:
            raise PermissionDenied("This requires the operator role. Ask an admin of this installation for it.")
        return _save(request, editor_from(request.POST, environment), environment)
    newest = environment.newest()
    if environment.archived_at or not may:
        return version_page(request, newest)
    return editor_page(request, editor_of(newest), environment)


@reads_at_most(parts_yaml.MOST_BYTES)
@operator_required
@require_http_methods(["GET", "HEAD", "POST"])
def import_(request: HttpRequest) -> HttpResponse:
    """Open an uploaded or pasted document in a new environment's editor, with errors per field; nothing is saved."""
    if request.method != "POST":
        return _import_form(request)
    try:
        editor = config_yaml.read(safe_yaml.document(request, parts_yaml.MOST_BYTES))
    except YamlRefused as error:
        return _import_form(request, str(error))
    wrong = editor.problem or editor.wrong
    return editor_page(request, editor, None, status=422 if wrong else 200, imported=True)


def editor_page(
    request: HttpRequest,
    editor: EnvironmentEditor,
    environment: Environment | None,
    *,
    status: int = 200,
    imported: bool = False,
) -> HttpResponse:
    context = {
        "editor": editor,
        "form": editor.environment,
        "kind": EnvironmentVersion.kind,
        "item": environment,
        "imported": imported,
        "version": environment.newest() if environment else None,
        "shelves": showing.shelves(person(request)),
    }
    return render(request, "catalogue/environments/edit.html", context, status=status)


def _save(request: HttpRequest, editor: EnvironmentEditor, environment: Environment | None) -> HttpResponse:
    before = environment.name if environment else ""
    if editor.is_valid() and _may_be_saved(request, editor, environment):
        try:
            with transaction.atomic():
                saved, is_new = editor.save(person(request))
        except IntegrityError:  # the name was taken between the check and the save
            editor.environment.add_error("name", NAME_TAKEN)
        else:
            name = saved.environment.name
            words = f" as version {saved.number}. Existing runs keep their version" if saved.number > 1 else ""
            same = f" Nothing in it changed, so it is still version {saved.number}."
            messages.success(request, f"Saved {name}{words}." if is_new else f"Saved {name}.{same}")
            return redirect("environment", saved.environment_id)
    if environment:
        environment.name = before  # the form has overwritten it with the typed one
    return editor_page(request, editor, environment, status=422)


def _may_be_saved(request: HttpRequest, editor: EnvironmentEditor, environment: Environment | None) -> bool:
    if environment and environment.archived_at:
        editor.problem = "This environment is archived. Unarchive it to change it."
        return False
    refused = [
        form for form in editor.parts if not permissions.may_use(EnvironmentVersion, person(request), form.spec())
    ]
    for form in refused:
        form.refuse(permissions.refused(EnvironmentVersion))
    if environment and not refused:
        newest, based_on = environment.newest(), editor.environment.cleaned_data["based_on"]
        if based_on is not None and based_on != newest.number:
            by = newest.created_by.get_username() if newest.created_by else "Somebody"
            editor.problem = (
                f"{by} has saved version {newest.number} since you opened this, which was version {based_on}. "
                f"Save again to make version {newest.number + 1} of what you see; version {newest.number} stays."
            )
            editor.rebase(newest.number)
            return False
    return not refused


def _import_form(request: HttpRequest, problem: str = "") -> HttpResponse:
    text, most = request.POST.get("text", ""), parts_yaml.MOST_BYTES
    context = {"problem": problem, "text": text if len(text) <= most else "", "most": most}
    return render(request, "catalogue/environments/import.html", context, status=422 if problem else 200)
