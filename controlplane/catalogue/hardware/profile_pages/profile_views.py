"""Pages of hardware profiles: view, create, change, archive, export as YAML and import."""

from django.contrib import messages
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.utils.text import slugify
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.catalogue.exchange.documents import MAX_BYTES
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.hardware.profile_pages import profile_import as profile_import_reading
from controlplane.catalogue.hardware.profile_pages import profile_yaml
from controlplane.catalogue.hardware.profile_pages.forms import ProfileForm, save
from controlplane.catalogue.hardware.profile_pages.profile_memory import on_page
from controlplane.catalogue.hardware.profiles import archive, profile_of
from controlplane.catalogue.hardware.queries import profile_for
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.body_limit import reads_at_most
from controlplane.platform.http.form_pages import form_page, import_page
from controlplane.platform.http.streams import yaml_download
from controlplane.platform.safe_yaml import YamlRefused
from workers.contract.wire.documents import ContractError


@require_http_methods(["GET", "HEAD", "POST"])
@operator_required
def profile_new(request: HttpRequest) -> HttpResponseBase:
    return _edit(request, None)


@require_http_methods(["GET", "HEAD", "POST"])
def profile(request: HttpRequest, profile_id: int) -> HttpResponseBase:
    """Show a profile's page to everyone, and save it on POST, which requires the operator role."""
    row = profile_for(request, profile_id)
    return (operator_required(_edit) if request.method == "POST" else _edit)(request, row)


@require_POST
@operator_required
def profile_archive(request: HttpRequest, profile_id: int) -> HttpResponseBase:
    """Archive (archived=1) or unarchive (archived=0) a profile."""
    row, archived = profile_for(request, profile_id), request.POST.get("archived") == "1"
    if archive(row, archived=archived):
        result = "is no longer offered" if archived else "is offered again"
        messages.success(request, f"{row.name} {result}. Runs that use it are unaffected.")
    return redirect("profile", row.pk)


@require_safe
def profile_export(request: HttpRequest, profile_id: int) -> HttpResponseBase:
    row = profile_for(request, profile_id)
    try:
        document = profile_yaml.export(profile_of(row))
    except ContractError as error:
        messages.error(request, f"{row.name} can't be exported: {error}. Open it and save it again.")
        return redirect("profile", row.pk)
    return yaml_download(document, slugify(row.name) or "profile")


@reads_at_most(MAX_BYTES)
@require_http_methods(["GET", "HEAD", "POST"])
@operator_required
def profile_import(request: HttpRequest) -> HttpResponseBase:
    """Open an uploaded or pasted document in a new profile's form, with errors per field, without saving it."""
    template = "catalogue/hardware/profile_import.html"
    if request.method != "POST":
        return import_page(request, template, "", MAX_BYTES)
    try:
        imported = profile_import_reading.read(profile_import_reading.document(request))
    except YamlRefused as error:
        return import_page(request, template, str(error), MAX_BYTES)
    form = imported.form
    form.tips = True
    context = {"form": form, "profile": None, "imported": True, "reading": imported.reading}
    return form_page(request, "catalogue/hardware/profile.html", context)


def _edit(request: HttpRequest, row: HardwareProfile | None) -> HttpResponse:
    memory = on_page(row, request.GET.get("model", ""), request.GET.get("card", "")) if row else None
    changes = {} if memory is None else memory.values_to(request.GET.get("use", ""))
    form = ProfileForm(request.POST if request.method == "POST" else None, profile=row, changes=changes)
    form.tips = person(request).may_operate  # a viewer's disabled fields would disable the "?", too
    if request.method == "POST" and form.is_valid() and (saved_row := _try_to_save(request, form, row)):
        messages.success(request, f"Profile {saved_row.name} is saved.")
        return redirect("profile", saved_row.pk)
    return form_page(request, "catalogue/hardware/profile.html", {"form": form, "profile": row, "memory": memory})


def _try_to_save(request: HttpRequest, form: ProfileForm, row: HardwareProfile | None) -> HardwareProfile | None:
    try:
        with transaction.atomic():
            return save(form, row or HardwareProfile(owner=person(request)))
    except IntegrityError:
        form.add_error("name", "A profile with this name was just created. Choose another name.")
        return None
