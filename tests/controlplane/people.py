"""Builders of people and signed-in clients."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

from django.test import Client

from controlplane.platform.accounts.models import Role, User

PASSWORD = "a long enough pass phrase"
KEEPS_SPACE = re.compile(rb"(<(pre|textarea)\b.*?</\2>)", re.DOTALL)
_numbers = count(1)


def make_user(role: Role = Role.VIEWER, *, name: str = "", password: str | None = PASSWORD) -> User:
    user = User(username=name or f"{role}{next(_numbers)}", role=role)
    if password:
        user.set_password(password)
    else:
        user.set_unusable_password()
    user.save()
    return user


class Reader(Client):
    """Reads pages as a browser shows them: a line break in HTML is a space, except where text keeps its own."""

    def request(self, **request: Any) -> Any:
        answer = super().request(**request)
        if not answer.streaming and answer.get("Content-Type", "").startswith("text/html"):
            parts = KEEPS_SPACE.split(answer.content)
            kept = [*parts[1::3], b""]
            spoken = (re.sub(rb"\s+", b" ", part) for part in parts[::3])
            answer.content = b"".join(text + own for text, own in zip(spoken, kept, strict=True))
        return answer


def signed_in(role: Role = Role.VIEWER, *, user: User | None = None, csrf: bool = False) -> Client:
    """A browser of somebody with this role."""
    client = Reader(enforce_csrf_checks=csrf)
    client.force_login(user or make_user(role), backend="django.contrib.auth.backends.ModelBackend")
    return client


def viewer() -> Client:
    return signed_in(Role.VIEWER)


def operator() -> Client:
    return signed_in(Role.OPERATOR)


def admin() -> Client:
    return signed_in(Role.ADMIN)
