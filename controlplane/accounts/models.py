"""People and their role. Viewer sees all; operator launches, stops, uploads; admin has users and secrets."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.db import models


class Role(models.TextChoices):
    VIEWER = "viewer", "Viewer"
    OPERATOR = "operator", "Operator"
    ADMIN = "admin", "Admin"


class User(AbstractUser):
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.VIEWER)
    max_running = models.PositiveIntegerField(null=True, blank=True)
    """How many of this person's runs may be on hosts at once. None: the installation's limit; 0: no limit."""
    max_queued = models.PositiveIntegerField(null=True, blank=True)
    """How many may wait. None and 0: as above."""

    @property
    def may_operate(self) -> bool:
        return self.role in (Role.OPERATOR, Role.ADMIN)

    @property
    def may_administer(self) -> bool:
        return self.role == Role.ADMIN


class SignInLink(models.Model):
    """A link that signs one person in, once. Only the token's hash is kept: the table gives nobody a way in."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="sign_in_links")
    token_hash = models.CharField(max_length=64, unique=True)
    asks_first = models.BooleanField(default=False)
    """Opening it shows a button, and pressing that uses it up: for links that travel through chat or mail,
    where a preview opens them before the person does."""
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)


class FailedSignIn(models.Model):
    """A wrong password, kept for as long as it counts against further guesses."""

    name = models.CharField(max_length=150)
    address = models.CharField(max_length=64)
    at = models.DateTimeField(db_index=True)
