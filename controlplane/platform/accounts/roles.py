"""Role checks as view decorators. A middleware already requires people to sign in."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase

from controlplane.platform.accounts.models import User

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]


def person(request: HttpRequest) -> User:
    """Return the signed-in user. Raises PermissionDenied if nobody is signed in."""
    if not isinstance(request.user, User):
        raise PermissionDenied("Sign in first.")
    return request.user


def operator_required(view: View[P]) -> View[P]:
    """Restrict a view to operators and admins: for launching, stopping, uploading and editing the catalogue."""
    return _restricted(view, lambda user: user.may_operate, "This requires the operator role.")


def admin_required(view: View[P]) -> View[P]:
    """Restrict a view to admins: for users and secrets."""
    return _restricted(view, lambda user: user.may_administer, "This requires the admin role.")


def _restricted(view: View[P], is_allowed: Callable[[User], bool], message: str) -> View[P]:
    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if not is_allowed(person(request)):
            raise PermissionDenied(f"{message} Ask an admin of this installation for it.")
        return view(request, *args, **kwargs)

    return guarded
