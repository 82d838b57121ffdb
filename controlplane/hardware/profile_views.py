"""Hardware profiles: looking at them, making, changing and deleting them."""

from __future__ import annotations

from django.contrib import messages
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.accounts.roles import operator_required, person
from controlplane.hardware.forms import ProfileForm, save
from controlplane.hardware.models import HardwareProfile
from controlplane.hardware.queries import profile_for


@require_http_methods(["GET", "HEAD", "POST"])
@operator_required
def profile_new(request: HttpRequest) -> HttpResponseBase:
    return _edit(request, None)


@require_http_methods(["GET", "HEAD", "POST"])
def profile(request: HttpRequest, profile_id: int) -> HttpResponseBase:
    """Everybody may look; saving takes the operator role."""
    row = profile_for(request, profile_id)
    if request.method == "POST":
        return _change(request, row)
    return _edit(request, row)


@operator_required
def _change(request: HttpRequest, row: HardwareProfile) -> HttpResponseBase:
    return _edit(request, row)


@require_POST
@operator_required
def profile_delete(request: HttpRequest, profile_id: int) -> HttpResponseBase:
    """Runs keep their frozen copy."""
    row = profile_for(request, profile_id)
    row.delete()
    messages.success(request, f"Profile {row.name} is deleted. Runs that used it are not affected.")
    return redirect("hardware")


def _edit(request: HttpRequest, row: HardwareProfile | None) -> HttpResponse:
    form = ProfileForm(request.POST if request.method == "POST" else None, profile=row)
    status = 200
    if request.method == "POST":
        if form.is_valid() and _saved(request, form, row):
            messages.success(request, f"Profile {form.cleaned_data['name']} is saved.")
            return redirect("hardware")
        status = 422
    return render(request, "hardware/profile.html", {"form": form, "profile": row}, status=status)


def _saved(request: HttpRequest, form: ProfileForm, row: HardwareProfile | None) -> bool:
    try:
        with transaction.atomic():
            save(form, row or HardwareProfile(owner=person(request)))
    except IntegrityError:
        form.add_error("name", "Another profile has just taken this name. Choose a different one.")
        return False
    return True
