"""Links that show one run to people without an account."""

from django.conf import settings
from django.db import models


class SharedLink(models.Model):
    """A read-only link to a run. Only the token's hash is stored, so the table can't be used to open one."""

    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="shared_links")
    token_hash = models.CharField(max_length=64, unique=True)
    with_completions = models.BooleanField(default=False)
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(db_index=True)
    opened_at = models.DateTimeField(null=True)
    """The last time it was opened, to the minute."""
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)

    @property
    def shows(self) -> str:
        return "charts and health, completions" if self.with_completions else "charts and health"
