"""Pages of an environment: a version, and the editor with its rows and the preview of its tools."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from controlplane.catalogue.environments import config_yaml, showing
from controlplane.catalogue.environments.forms import (
    LIMIT_LABELS,
    EnvironmentEditor,
    editor_from,
    editor_of,
    new_editor,
    new_row,
    parts_from,
)
from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.versioned import parts_yaml, saving, views
from controlplane.catalogue.versioned.differences import Difference, part_differences, setting_difference
from controlplane.catalogue.versioned.editor_pages import EditorPages
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.body_limit import reads_at_most
from workers.contract.wire.documents import to_dict
from workers.environments.library import LIBRARY


def version_page(request: HttpRequest, version: EnvironmentVersion) -> HttpResponse:
    limits = [(label, getattr(version.episode_limits, name)) for name, label in LIMIT_LABELS.items()]
    specs = version.specs
    preview = None if showing.costly_parts(specs) else showing.preview(specs)
    return views.version_page(request, version, limits=limits, preview=preview)


def differences(before: EnvironmentVersion, after: EnvironmentVersion) -> list[Difference]:
    changes = part_differences(before, after)
    old, new = to_dict(before.episode_limits), to_dict(after.episode_limits)
    for name in old:
        changes += setting_difference(LIMIT_LABELS[name].lower(), old[name], new[name])
    return changes


@operator_required
@require_GET
def part(request: HttpRequest) -> HttpResponse:
    """Return a new editor row for an entry of the library."""
    key = request.GET.get("function", "")
    entry = LIBRARY.get(key)
    if entry is None or (entry.admin_only and not person(request).may_administer):
        return HttpResponse("This entry doesn't exist, or you may not add it.", status=404, content_type="text/plain")
    used_names = {str(value) for name, value in request.GET.items() if name.endswith("-name")}
    context = {"component": new_row(key, used_names), "index": len(request.GET.getlist("row")), "open": True}
    return render(request, "catalogue/environments/_part.html", context)


@operator_required
@require_POST
def preview(request: HttpRequest) -> HttpResponse:
    """Show the tools of the editor's form as the model sees them. With ?unasked, which the page sends after each
    change, there is no preview if a part starts the sandbox or calls a server."""
    problems, specs = [], []
    for form in parts_from(request.POST):
        if not form.is_valid():
            errors = [message for messages in form.errors.values() for message in messages]
            problems.append((form.shown_name or form.entry.title, errors))
        elif not saving.may_use_part(EnvironmentVersion, person(request), form.spec()):
            problems.append((form.shown_name, [saving.code_refused(EnvironmentVersion)]))
        else:
            specs.append(form.spec())
    costly_parts = showing.costly_parts(specs) if "unasked" in request.GET else []
    context = {"problems": problems, "parts": len(specs), "waits": costly_parts}
    if not costly_parts:
        context["preview"] = showing.preview(specs)
    return render(request, "catalogue/environments/_preview.html", context)


def _refusals(request: HttpRequest, editor: EnvironmentEditor) -> dict[int, str]:
    return {
        index: saving.code_refused(EnvironmentVersion)
        for index, form in enumerate(editor.rows)
        if not saving.may_use_part(EnvironmentVersion, person(request), form.spec())
    }


PAGES = EditorPages(
    model=EnvironmentVersion,
    editor_from=editor_from,
    editor_of=editor_of,
    read=config_yaml.read,
    version_page=version_page,
    refusals=_refusals,
    context=lambda request, editor: {"shelves": showing.library_sections(person(request))},
)


@operator_required
@require_http_methods(["GET", "POST"])
def new(request: HttpRequest) -> HttpResponse:
    return PAGES.new(request, new_editor)


@require_http_methods(["GET", "POST"])
def edit(request: HttpRequest, environment_id: int) -> HttpResponse:
    return PAGES.edit(request, environment_id)


@reads_at_most(parts_yaml.MAX_BYTES)
@operator_required
@require_http_methods(["GET", "HEAD", "POST"])
def import_(request: HttpRequest) -> HttpResponse:
    return PAGES.import_(request)
