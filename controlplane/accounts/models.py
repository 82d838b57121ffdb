"""People and their role. Viewer sees all; operator launches, stops, uploads; admin has users and secrets."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser
from django.db import models


class Role(models.TextChoices):
    VIEWER = "viewer", "Viewer"
    OPERATOR = "operator", "Operator"
    ADMIN = "admin", "Admin"


class User(AbstractUser):
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.VIEWER)

    @property
    def may_operate(self) -> bool:
        return self.role in (Role.OPERATOR, Role.ADMIN)

    @property
    def may_administer(self) -> bool:
        return self.role == Role.ADMIN
