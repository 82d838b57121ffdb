"""The Users page, where admins invite users by one-time link, assign roles and limits, and disable or enable them."""

from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.platform.accounts import managing, onetime
from controlplane.platform.accounts.forms import NewUserForm, UserForm
from controlplane.platform.accounts.models import User
from controlplane.platform.accounts.roles import admin_required, person
from controlplane.platform.http.form_pages import form_page, keep_once, take_once

LINK = "sign-in link"


@never_cache
@admin_required
@require_http_methods(["GET", "POST"])
def users(request: HttpRequest) -> HttpResponse:
    form = NewUserForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        user = form.save(commit=False)
        user.set_unusable_password()
        user.save()
        return _with_link(request, user)
    people = User.objects.order_by("username")
    context = {
        "form": form,
        "people": [(user, UserForm(instance=user, auto_id=f"user-{user.pk}-%s")) for user in people],
        "everyones": {"running": settings.MAX_RUNNING, "queued": settings.MAX_QUEUED},
        "link": take_once(request, LINK),
    }
    return form_page(request, "platform/accounts/users.html", context)


@admin_required
@require_POST
def edit(request: HttpRequest, user_id: int) -> HttpResponse:
    """Set the user's role and the limits on active and queued runs, all or nothing."""
    user = get_object_or_404(User, pk=user_id)
    form = UserForm(request.POST, instance=user)
    if not form.is_valid():
        mistakes = [f"{form[name].label}: {' '.join(map(str, errors))}" for name, errors in form.errors.items()]
        messages.error(request, f"{user.username} was not changed. {' '.join(mistakes)}")
        return redirect("users")
    try:
        with transaction.atomic():
            managing.set_role(user_id, form.cleaned_data["role"])
            managing.save_limits(user)
    except managing.NotAllowed as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"{user.username} is saved.")
    return redirect("users")


@admin_required
@require_POST
def active(request: HttpRequest, user_id: int) -> HttpResponse:
    try:
        user = managing.set_active(user_id, person(request), active=request.POST.get("active") == "1")
    except managing.NotAllowed as error:
        messages.error(request, str(error))
    else:
        new_status = "enabled and may sign in again" if user.is_active else "disabled and signed out everywhere"
        messages.success(request, f"{user.username} is {new_status}.")
    return redirect("users")


@never_cache
@admin_required
@require_POST
def link(request: HttpRequest, user_id: int) -> HttpResponse:
    """Create a new link for a user whose invitation expired or who forgot their password."""
    return _with_link(request, get_object_or_404(User, pk=user_id, is_active=True))


def _with_link(request: HttpRequest, user: User) -> HttpResponse:
    keep_once(request, LINK, user.username, onetime.invite(user, request.build_absolute_uri("/")))
    return redirect("users")
