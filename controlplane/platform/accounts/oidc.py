"""Sign-in with OpenID Connect. A person's groups at the provider decide their role at each sign-in.

A provider account is never merged with a local account of the same name or address: whoever controls that name at the
provider could otherwise take over the local account.
"""

import logging
import re
from collections.abc import Callable
from typing import Any, NoReturn

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialLogin
from allauth.socialaccount.providers.base import AuthError
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from requests import RequestException

from controlplane.platform.accounts.models import User
from controlplane.platform.accounts.provider import Adapter, IdentityProvider
from controlplane.platform.oidc import Oidc

log = logging.getLogger(__name__)

BACKEND = "django.contrib.auth.backends.ModelBackend"
_NOT_IN_NAMES = re.compile(r"[^\w.@+-]+")
_MAX_NAME_LENGTH = 140
"""Maximum length of a name: the model's 150 characters, minus room for a number."""


@login_not_required
@never_cache
@require_GET
def begin(request: HttpRequest) -> HttpResponse:
    """Redirect the browser to the provider."""

    def redirect_to_provider() -> HttpResponse:
        provider: IdentityProvider = _adapter(request).get_provider()
        target = safe_next(request, request.GET.get("next", ""))
        response: HttpResponse = provider.redirect(
            request, "login", next_url=target, scope=provider.get_scope(), auth_params={}
        )
        return response

    return _respond_or_refuse(request, redirect_to_provider)


@login_not_required
@never_cache
@require_GET
def callback(request: HttpRequest) -> HttpResponse:
    """Finish a sign-in when the provider sends the browser back."""
    return _respond_or_refuse(request, lambda: OAuth2CallbackView.adapter_view(_adapter(request))(request))


def refuse_password(user: User) -> None:
    """Raise PermissionDenied for users of the provider: a password here would outlive their account there."""
    if settings.OIDC is not None and SocialAccount.objects.filter(user=user).exists():
        raise PermissionDenied(f"You sign in with {settings.OIDC.name}, so there is no password to set here.")


def safe_next(request: HttpRequest, target: str) -> str:
    """Return the page to show after sign-in: the target if it is on this site, otherwise the home page."""
    safe = url_has_allowed_host_and_scheme(target, {request.get_host()}, require_https=request.is_secure())
    return target if safe and target.startswith("/") else "home"


class OidcSignIn(DefaultSocialAccountAdapter):  # type: ignore[misc]  # allauth has no types
    """Hooks that allauth calls for the provider's response. Allauth's own account forms are never reached."""

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> NoReturn:
        raise ImmediateHttpResponse(_sign_in(request, sociallogin))

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> NoReturn:
        log.warning("sign-in by OpenID Connect failed: %s %s", error, exception or "")
        if error == AuthError.CANCELLED:
            raise ImmediateHttpResponse(redirect("sign_in"))
        message = "The sign-in failed: it took too long, or the provider's response is invalid. Try again."
        raise ImmediateHttpResponse(_refusal_page(request, message))


def _oidc_settings() -> Oidc:
    if settings.OIDC is None:
        raise Http404
    return settings.OIDC


def _adapter(request: HttpRequest) -> Adapter:
    _oidc_settings()
    return Adapter(request, IdentityProvider.id)


def _respond_or_refuse(request: HttpRequest, respond: Callable[[], HttpResponse]) -> HttpResponse:
    """Call `respond` and return its response, or an error page if the provider is down or breaks the protocol."""
    try:
        return respond()
    except (RequestException, OAuth2Error, KeyError, TypeError, ValueError) as error:
        log.warning("sign-in by OpenID Connect failed: %r", error)
        message = f"{_oidc_settings().name} can't be reached, or its response is invalid. Try again, or ask an admin."
        return _refusal_page(request, message, status=502)


def _sign_in(request: HttpRequest, signing_in: SocialLogin) -> HttpResponse:
    groups = signing_in.claims.get(_oidc_settings().groups_claim) or ()
    groups = [groups] if isinstance(groups, str) else [group for group in groups if isinstance(group, str)]
    role = _oidc_settings().role_of(groups)
    if role is None:
        return _refusal_page(request, "None of your groups may sign in here. Ask the person who manages them.")
    try:
        with transaction.atomic():
            user = _update_user(signing_in, role) if signing_in.is_existing else _create_user(signing_in, role)
    except IntegrityError:  # two first sign-ins at once
        return _refusal_page(request, "Somebody has just signed in with this name. Try again.", status=409)
    if not user.is_active:
        return _refusal_page(request, "Your account here is disabled. Ask an admin of this installation.")
    login(request, user, backend=BACKEND)
    return redirect(safe_next(request, signing_in.get_redirect_url(request) or ""))


def _update_user(signing_in: SocialLogin, role: str) -> User:
    user = User.objects.select_for_update().get(pk=signing_in.user.pk)
    if user.is_active and user.role != role:
        user.role = role
        user.save(update_fields=["role"])
    return user


def _create_user(signing_in: SocialLogin, role: str) -> User:
    user = User(username=_unused_name(signing_in.claims), email=signing_in.user.email, role=role)
    user.set_unusable_password()
    user.save()
    signing_in.account.user = user
    signing_in.account.save()
    return user


def _unused_name(claims: dict[str, Any]) -> str:
    claimed_name = claims.get("preferred_username") or claims.get("email") or claims["sub"]
    name = _NOT_IN_NAMES.sub("-", str(claimed_name)).strip("-")[:_MAX_NAME_LENGTH] or "user"
    used_names = {*User.objects.filter(username__startswith=name).values_list("username", flat=True)}
    number = 1
    while (candidate := name if number == 1 else f"{name}-{number}") in used_names:
        number += 1
    return candidate


def _refusal_page(request: HttpRequest, message: str, *, status: int = 403) -> HttpResponse:
    return render(request, "platform/accounts/sign_in_refused.html", {"message": message}, status=status)
