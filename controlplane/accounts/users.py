"""The users page: admins invite users by one-time link, assign roles, disable and enable accounts."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.accounts import managing, onetime
from controlplane.accounts.forms import LimitsForm, NewUserForm, RoleForm
from controlplane.accounts.models import Role, User
from controlplane.accounts.roles import admin_required, person


@never_cache
@admin_required
@require_http_methods(["GET", "POST"])
def users(request: HttpRequest) -> HttpResponse:
    form = NewUserForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        user = form.save(commit=False)
        user.set_unusable_password()
        user.save()
        return _page(request, link_for=user)
    return _page(request, form=form, status=422 if form.errors else 200)


@admin_required
@require_POST
def role(request: HttpRequest, user_id: int) -> HttpResponse:
    form = RoleForm(request.POST)
    if not form.is_valid():
        return _page(request, problem="That is not a role.", status=422)
    try:
        managing.set_role(user_id, form.cleaned_data["role"])
    except managing.NotAllowed as error:
        return _page(request, problem=str(error), status=409)
    return redirect("users")


@admin_required
@require_POST
def active(request: HttpRequest, user_id: int) -> HttpResponse:
    try:
        managing.set_active(user_id, person(request), active=request.POST.get("active") == "1")
    except managing.NotAllowed as error:
        return _page(request, problem=str(error), status=409)
    return redirect("users")


@admin_required
@require_POST
def limits(request: HttpRequest, user_id: int) -> HttpResponse:
    """Set the user's limits of active and queued runs."""
    user = get_object_or_404(User, pk=user_id)
    form = LimitsForm(request.POST, instance=user)
    if not form.is_valid():
        return _page(request, problem="A limit is a whole number; 0 means none, empty means the default.", status=422)
    managing.save_limits(user)
    return redirect("users")


@never_cache
@admin_required
@require_POST
def link(request: HttpRequest, user_id: int) -> HttpResponse:
    """Create a new link for a user whose invitation expired or who forgot the password."""
    user = get_object_or_404(User, pk=user_id, is_active=True)
    return _page(request, link_for=user)


def _page(
    request: HttpRequest,
    *,
    form: NewUserForm | None = None,
    link_for: User | None = None,
    problem: str = "",
    status: int = 200,
) -> HttpResponse:
    # The link is rendered only into this response: a flash message would store the token in a cookie.
    link_url = onetime.invite(link_for, request.build_absolute_uri("/")) if link_for else ""
    context = {
        "form": form or NewUserForm(),
        "people": User.objects.order_by("username"),
        "roles": Role.choices,
        "everyones": {"running": settings.MAX_RUNNING, "queued": settings.MAX_QUEUED},
        "link_for": link_for,
        "link_url": link_url,
        "problem": problem,
    }
    return render(request, "accounts/users.html", context, status=status)
