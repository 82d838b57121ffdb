"""Recording of people's acts, each in its own transaction.

Acts follow from the rows that a person's request saves and deletes, so pages and the API need no code for them;
`record` is for UPDATE statements. Automatic work (the tick, workers, hosts) is not recorded.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db.models import Model
from django.db.models.signals import post_delete, post_save, pre_save
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from controlplane.platform.accounts.models import ApiToken, User
from controlplane.platform.activity.models import Act, kind_of
from controlplane.platform.http import addresses

FAILURE_WINDOW = timedelta(minutes=10)
MAX_FAILED = 20
"""Maximum number of failed sign-ins recorded in FAILURE_WINDOW, one per name, so that guesses can't flood the list."""

_request: ContextVar[HttpRequest | None] = ContextVar("request", default=None)
Phrase = str | Callable[[Any, Any], str]
"""Phrase to record for a changed field, or a function that returns one for the old and new values."""


class ActsAttribution:
    """Middleware that attributes every save during a request to its user."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        token = _request.set(request)
        try:
            return self.get_response(request)
        finally:
            _request.reset(token)


def acting() -> User | None:
    """Return the user of the current request, or None outside requests and for hosts."""
    request = _request.get()
    user = getattr(request, "user", None)
    return user if isinstance(user, User) else None


def record(row: Model, phrase: str) -> None:
    """Record an act on a row of a model in `KINDS`. Do nothing outside a person's request."""
    if (user := acting()) is not None:
        _record(user, kind_of(row), str(row.pk), str(row), phrase)


def recorded(changed: int, row: Model, phrase: str) -> bool:
    """Record an act if an UPDATE `changed` any rows, and return whether it did."""
    if changed:
        record(row, phrase)
    return bool(changed)


def _record(user: User, kind: str, key: str, name: str, phrase: str) -> None:
    token = getattr(_request.get(), "auth", None)
    Act.objects.create(
        by_id=user.pk,
        by_name=user.get_username(),
        token=token.name if isinstance(token, ApiToken) else "",
        kind=kind,
        key=key,
        name=name[:200],
        what=phrase[:500],
    )


@dataclass(frozen=True)
class Watched:
    """Phrases to record when a person creates, changes or deletes a row; nothing is recorded for an empty one."""

    kind: str
    created: Phrase = ""
    deleted: Phrase = ""
    """A function for `created` or `deleted` gets the row as both values."""
    changed: Mapping[str, Phrase] = field(default_factory=dict)
    """Phrases for changes to columns, by column."""
    of: Callable[[Any], tuple[Any, str]] = lambda row: (row.pk, str(row))
    """Function that returns the key and name of a row's object, such as the item of a version."""


def renamed(old: str, new: str) -> str:
    return f"Renamed from “{old}”"


def watch(model: str, watched: Watched) -> None:
    """Start recording what people do to rows of `app.Model`. Called once per model when Django starts."""
    sender = apps.get_model(model)
    listener = _Listener(watched)
    pre_save.connect(listener.before, sender=sender, weak=False, dispatch_uid=f"before {model}")
    post_save.connect(listener.saved, sender=sender, weak=False, dispatch_uid=f"saved {model}")
    post_delete.connect(listener.deleted, sender=sender, weak=False, dispatch_uid=f"deleted {model}")


class _Listener:
    def __init__(self, watched: Watched) -> None:
        self.watched = watched

    def before(self, sender: type[Model], instance: Any, update_fields: Any, **signal: Any) -> None:
        """Store on the instance the values that may change, for `saved`."""
        instance._before_change = {}
        names = [name for name in self.watched.changed if update_fields is None or name in update_fields]
        if names and not instance._state.adding and acting() is not None:
            old_values = sender._base_manager.filter(pk=instance.pk).values(*names).first()
            instance._before_change = old_values or {}

    def saved(self, instance: Any, created: bool, raw: bool = False, **signal: Any) -> None:
        if raw or acting() is None:
            return
        if created:
            self._record(instance, [_resolve(self.watched.created, instance, instance)])
            return
        old: dict[str, Any] = instance._before_change
        now = {name: getattr(instance, instance._meta.get_field(name).attname) for name in old}
        phrases = self.watched.changed
        self._record(
            instance, [_resolve(phrases[name], old[name], now[name]) for name in old if old[name] != now[name]]
        )

    def deleted(self, sender: type[Model], instance: Any, origin: Any = None, **signal: Any) -> None:
        # A deletion that cascades from the item is not a separate act.
        is_direct = origin is instance or getattr(origin, "model", None) is sender
        if is_direct and acting() is not None:
            self._record(instance, [_resolve(self.watched.deleted, instance, instance)])

    def _record(self, row: Any, phrases: list[str]) -> None:
        user = acting()
        sentence = ", ".join(dict.fromkeys(phrase[:1].lower() + phrase[1:] for phrase in phrases if phrase))
        if user is None or not sentence:
            return
        key, name = self.watched.of(row)
        _record(user, self.watched.kind, str(key), name, sentence[:1].upper() + sentence[1:])


def _resolve(phrase: Phrase, old: Any, new: Any) -> str:
    return phrase if isinstance(phrase, str) else phrase(old, new)


def watch_sign_ins() -> None:
    """Start recording sign-ins, sign-outs and failed sign-ins. Called once when Django starts."""
    user_login_failed.connect(_record_failed_sign_in, dispatch_uid="refused")
    user_logged_in.connect(_record_sign_in, dispatch_uid="signed in")
    user_logged_out.connect(_record_sign_out, dispatch_uid="signed out")


def _record_sign_in(request: HttpRequest, user: User, **signal: Any) -> None:
    address = addresses.of_client(request)
    _record(user, "session", str(user.pk), user.get_username(), f"Signed in from {address}" if address else "Signed in")


def _record_failed_sign_in(credentials: Mapping[str, Any], request: HttpRequest | None = None, **signal: Any) -> None:
    name = str(credentials.get("username", ""))[:200]
    recent = Act.objects.filter(kind="session", by_name="", at__gt=timezone.now() - FAILURE_WINDOW)
    names = list(recent.values_list("name", flat=True)[:MAX_FAILED])
    if name in names or len(names) >= MAX_FAILED:
        return
    address = addresses.of_client(request) if request else ""
    phrase = f"Failed to sign in{f' from {address}' if address else ''}"
    if len(names) == MAX_FAILED - 1:
        phrase += "; further names within ten minutes are not listed"
    Act.objects.create(kind="session", name=name, what=phrase)


def _record_sign_out(user: User | None, **signal: Any) -> None:
    if user is not None:
        _record(user, "session", str(user.pk), user.get_username(), "Signed out")
