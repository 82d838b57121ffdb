"""The pages for signing in and out and for setting a password."""

import time

from django.conf import settings as site
from django.contrib import messages
from django.contrib.auth import authenticate, login, logout, update_session_auth_hash
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.platform.accounts import api_tokens, oidc, onetime, throttle
from controlplane.platform.accounts.forms import PasswordForm, SignInForm
from controlplane.platform.accounts.models import User, sign_in_changed
from controlplane.platform.accounts.roles import person
from controlplane.platform.http import addresses
from controlplane.platform.http.form_pages import form_page

BY_LINK_AT = "signed_in_by_link_at"
LINK_PROVES_FOR_S = 900.0


@require_safe
def settings(request: HttpRequest) -> HttpResponse:
    """Redirect to the first settings page; the settings pages link to each other."""
    return redirect("health_presets")


@login_not_required
@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    if request.user.is_authenticated:
        return redirect(_next(request))
    form = SignInForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        user = _authenticated(request, form)
        if user is not None:
            login(request, user)
            return redirect(_next(request))
    context = {"form": form, "oidc": site.OIDC, "next": request.POST.get("next") or request.GET.get("next", "")}
    return form_page(request, "platform/accounts/sign_in.html", context)


def _authenticated(request: HttpRequest, form: SignInForm) -> User | None:
    """Return the user. On failure return None and add a form error that doesn't reveal whether the name or the
    password was wrong."""
    name, address = form.cleaned_data["username"], addresses.of_client(request)
    if throttle.begin_try(name, address) is None:
        form.add_error(None, "Too many wrong passwords. Wait ten minutes and try again.")
        return None
    user = authenticate(request, username=name, password=form.cleaned_data["password"])
    if not isinstance(user, User):
        form.add_error(None, "Name or password is wrong.")
        return None
    throttle.forget(name, address)
    return user


@login_not_required
@never_cache
@require_http_methods(["GET", "POST"])
def sign_in_once(request: HttpRequest, token: str) -> HttpResponse:
    """Sign a user in with a one-time link. Invitations show a button first; the first start's link signs in at once."""
    link = onetime.peek(token)
    if link is None:
        return render(request, "platform/accounts/link_gone.html", status=410)
    if request.method == "GET" and (link.asks_first or _is_preview(request)):
        return render(request, "platform/accounts/link_asks.html", {"link": link})
    user = onetime.use(token)
    if user is None:
        return render(request, "platform/accounts/link_gone.html", status=410)
    login(request, user, backend=oidc.BACKEND)
    request.session[BY_LINK_AT] = time.time()
    return redirect("set_password" if link.asks_first else _next(request))


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    user = person(request)
    logout(request)
    sign_in_changed.send(User, user_id=user.pk)
    return redirect("sign_in")


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def password(request: HttpRequest) -> HttpResponse:
    """Set or change the password. This ends the user's other sessions, whose hash no longer matches, and revokes their
    API tokens, which somebody who knew the old password may have created."""
    user = person(request)
    oidc.refuse_password(user)
    address = addresses.of_client(request)
    # Signed in by link recently: an older open browser is not enough to set a new password.
    by_link = time.time() - float(request.session.get(BY_LINK_AT, 0)) < LINK_PROVES_FOR_S
    form = PasswordForm(user, request.POST or None, proved_by_link=by_link)
    attempt = throttle.begin_try(user.username, address) if request.method == "POST" else None
    if request.method == "POST" and attempt is None:
        form.add_error(None, "Too many wrong passwords. Wait ten minutes and try again.")
    elif request.method == "POST" and form.is_valid():
        form.save()
        throttle.forget(user.username, address)
        request.session.pop(BY_LINK_AT, None)
        user.sign_in_links.all().delete()
        revoked_count = api_tokens.revoke(user.api_tokens.all(), user)
        update_session_auth_hash(request, user)
        sign_in_changed.send(User, user_id=user.pk)
        note = " Your API tokens were revoked." if revoked_count else ""
        messages.success(request, f"Your password is set. You were signed out everywhere else.{note}")
        return redirect("settings" if "current" in form.fields else "home")
    elif attempt is not None and not form.has_error("current", "wrong"):
        attempt.delete()
    return form_page(request, "platform/accounts/password.html", {"form": form})


def _next(request: HttpRequest) -> str:
    return oidc.safe_next(request, request.POST.get("next") or request.GET.get("next") or "")


def _is_preview(request: HttpRequest) -> bool:
    """Return whether a browser is only prefetching the link, which must not use it up."""
    return "prefetch" in request.headers.get("Sec-Purpose", "") or "prefetch" in request.headers.get("Purpose", "")
