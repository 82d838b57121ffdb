"""Users and roles. Viewers see everything; operators launch, stop and upload; admins manage users and secrets."""

import json

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.core.validators import RegexValidator
from django.db import models
from django.dispatch import Signal

from controlplane.platform import sealing

HUB_TOKEN = "HF_TOKEN"  # noqa: S105  # its name
sign_in_changed = Signal()
"""Signal with a `user_id`, sent once a password change, a sign-out, or an account's disabling or enabling is
committed."""
limits_raised = Signal()
"""Signal sent after changed run limits are committed, so that a queued run can start."""


class Role(models.TextChoices):
    VIEWER = "viewer", "Viewer"
    OPERATOR = "operator", "Operator"
    ADMIN = "admin", "Admin"


class User(AbstractUser):
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.VIEWER)
    max_running = models.PositiveIntegerField(null=True, blank=True)
    """The user's limit on active runs: None for the installation's limit, 0 for no limit."""
    max_queued = models.PositiveIntegerField(null=True, blank=True)
    """The user's limit on queued runs, with the same meaning of None and 0."""
    toured_at = models.DateTimeField(null=True, blank=True)
    """Time at which the tour of the run page ended or was skipped; None if the next run page should show it."""

    @property
    def may_operate(self) -> bool:
        return self.role in (Role.OPERATOR, Role.ADMIN)

    @property
    def may_administer(self) -> bool:
        return self.role == Role.ADMIN


class SignInLink(models.Model):
    """Link that signs one user in, once. Only the token's hash is stored, so the table can't be used to sign in."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="sign_in_links")
    token_hash = models.CharField(max_length=64, unique=True)
    asks_first = models.BooleanField(default=False)
    """True if opening the link only shows a button that uses it up, since chat and mail previews open links, too."""
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)


class ApiScope(models.TextChoices):
    READ = "read", "Read"
    OPERATE = "operate", "Operate"
    ADMIN = "admin", "Administer"


class ApiToken(models.Model):
    """Personal API token, stored as a hash. Its rules are in `api_tokens`."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=80)
    token_hash = models.CharField(max_length=64, unique=True)
    scope = models.CharField(max_length=10, choices=ApiScope.choices, default=ApiScope.READ)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-created_at", "-pk")

    def __str__(self) -> str:
        return self.name


class ApiTokenAct(models.Model):
    """Entry in a token's history: its creation, its revocation, or a request for a change."""

    token = models.ForeignKey(ApiToken, on_delete=models.CASCADE, related_name="acts")
    at = models.DateTimeField()
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    what = models.CharField(max_length=200)
    """Act: `made`, `revoked`, or a request such as `POST /api/v1/runs`."""
    status = models.PositiveSmallIntegerField(null=True)
    address = models.CharField(max_length=64, blank=True)

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return self.what


class FailedSignIn(models.Model):
    """Failed sign-in or unknown join code, kept while it limits new attempts."""

    name = models.CharField(max_length=150)
    address = models.CharField(max_length=64)
    at = models.DateTimeField(db_index=True)


class Secret(models.Model):
    """Key that runs use and people must not see. Only `vault` hands out decrypted secrets."""

    class Kind(models.TextChoices):
        ENDPOINT = "endpoint", "Endpoint (judge, player, W&B, MLflow)"
        HUB = "hub", "Token of the model hub"
        STORE = "store", "Store for checkpoints (S3)"
        ENGINE = "engine", "API server of SkyPilot"

    name = models.CharField(
        max_length=40,
        unique=True,
        validators=[RegexValidator(r"\A[A-Z0-9_]+\Z", "Capital letters, digits and _ only.")],
    )
    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.ENDPOINT)
    address = models.CharField(max_length=500, blank=True)
    """URL prefix of requests to an endpoint or engine; a store's server, bucket, prefix and region; "" for a token."""
    private_too = models.BooleanField(default=False)
    sealed = models.TextField()
    """Encrypted key and address. If the row's address is changed afterwards, the key can't be read."""
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    used_by = models.CharField(max_length=20, blank=True)
    """Id of the run that last received the secret; "" if the last use was for no run."""

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def lock_in(self, key: str) -> None:
        self.sealed = sealing.seal(json.dumps({"address": self.address, "key": key}))

    def key(self) -> str:
        """Return the decrypted key. Raises sealing.CannotOpen if it can't be decrypted or was entered for another
        address."""
        content = json.loads(sealing.unseal(self.sealed))
        if content["address"] != self.address:
            raise sealing.CannotOpen("It was entered for another address.")
        return str(content["key"])
