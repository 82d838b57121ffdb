"""A program with a token of its own, as Django's test client."""

from __future__ import annotations

from typing import Any

from django.test import Client

from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import ApiScope, Role, User
from tests.controlplane.people import make_user


class Program:
    """Sends JSON with a token, and reads JSON."""

    def __init__(self, scope: str = ApiScope.OPERATE, *, user: User | None = None) -> None:
        roles = {ApiScope.READ: Role.VIEWER, ApiScope.OPERATE: Role.OPERATOR, ApiScope.ADMIN: Role.ADMIN}
        self.user = user or make_user(roles[ApiScope(scope)])
        self.token, self.text = api_tokens.make(self.user, "a program", scope, days=7)
        self.client = Client(headers={"Authorization": f"Bearer {self.text}"})

    def get(self, path: str, **query: Any) -> Any:
        return self.client.get(f"/api/v1/{path}", query)

    def post(self, path: str, body: Any = None, **more: Any) -> Any:
        return self.client.post(f"/api/v1/{path}", {} if body is None else body, "application/json", **more)

    def patch(self, path: str, body: Any) -> Any:
        return self.client.patch(f"/api/v1/{path}", body, "application/json")

    def delete(self, path: str) -> Any:
        return self.client.delete(f"/api/v1/{path}")
