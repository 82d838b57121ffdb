"""Credentials of hosts, and the one-time codes that machines exchange for them."""

from django.conf import settings
from django.db import models
from django.db.models import Q


class HostCredential(models.Model):
    """A host's token and the password of its Redis user, stored as hashes. Revoked credentials are kept."""

    host_name = models.CharField(max_length=64)
    token_sha256 = models.CharField(max_length=64, unique=True)
    redis_sha256 = models.CharField(max_length=64, blank=True)
    """Hash of the Redis password; "" for the host run by `up`, which uses the control plane's own connection."""
    embedded = models.BooleanField(default=False)
    """True for the host that `up` runs next to the control plane."""
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    last_used_at = models.DateTimeField(null=True)
    version = models.CharField(max_length=60, blank=True)
    clock_skew_s = models.FloatField(null=True)
    """Seconds by which the host's clock is ahead of ours; only for display."""
    refusal = models.TextField(blank=True)
    """Reason why the last announcement was refused, or ""."""
    copied_at = models.DateTimeField(null=True)
    """Time at which another machine last used this token and was refused."""
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        indexes = [models.Index(fields=["host_name", "revoked_at"], name="credential_of_host")]
        constraints = [
            models.UniqueConstraint(fields=["host_name"], condition=Q(revoked_at=None), name="one_credential_a_host")
        ]

    def __str__(self) -> str:
        return self.host_name


class JoinCode(models.Model):
    """Code with which one machine can join until it expires."""

    code_sha256 = models.CharField(max_length=64, unique=True)
    host_name = models.CharField(max_length=64, blank=True)
    """Name that the host must have; "" if the machine chooses."""
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    used_by = models.CharField(max_length=64, blank=True)

    def __str__(self) -> str:
        return self.host_name or f"code {self.pk}"
