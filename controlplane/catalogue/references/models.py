"""Checks of a dataset version's reference answers, and the answers that fail."""

from django.conf import settings
from django.db import models
from django.urls import reverse


class ReferenceCheck(models.Model):
    """Pass over all rows of a dataset version, in which a config's components score each row's answer."""

    WAITING, RUNNING, DONE, STOPPED, FAILED = "queued", "running", "succeeded", "stopped", "failed"
    STATUSES = (WAITING, RUNNING, DONE, STOPPED, FAILED)
    LIVE = (WAITING, RUNNING)

    dataset_version = models.ForeignKey("datasets.DatasetVersion", on_delete=models.CASCADE, related_name="+")
    reward_version = models.ForeignKey("rewards.RewardVersion", on_delete=models.CASCADE, related_name="+")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    status = models.CharField(max_length=9, default=WAITING, choices=[(s, s) for s in STATUSES])
    problem = models.TextField(blank=True)
    """Sentence that says why the check ended before the last row; "" if it didn't, or a user stopped it."""
    done = models.IntegerField(default=0)
    """Number of checked rows, after which an interrupted check continues."""
    unanswered = models.IntegerField(default=0)
    """Number of checked rows without an answer."""
    failed_rows = models.IntegerField(default=0)
    counts = models.JSONField(default=dict)
    """{component: {"scored", "failed": numbers of answers, "total": sum of their scores}}."""

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"{self.dataset_version} by {self.reward_version}"

    def get_absolute_url(self) -> str:
        return reverse("reference_check", args=[self.pk])

    @property
    def live(self) -> bool:
        return self.status in self.LIVE


class ReferenceFailure(models.Model):
    """Answer that doesn't get a component's full score."""

    check_of = models.ForeignKey(ReferenceCheck, on_delete=models.CASCADE, related_name="failures")
    row = models.BigIntegerField()
    """row_id of the row."""
    component = models.CharField(max_length=200)
    score = models.FloatField(null=True)
    """NULL if the reward failed on the answer or couldn't read it."""
    message = models.TextField(blank=True)
    excerpt = models.TextField()

    class Meta:
        ordering = ("row", "pk")
        constraints = [models.UniqueConstraint(fields=["check_of", "row", "component"], name="reference_failure")]

    def __str__(self) -> str:
        return f"row {self.row}: {self.component}"
