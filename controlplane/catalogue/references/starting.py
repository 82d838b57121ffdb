"""Actions on checks of reference answers: start, stop, and derive a version without the rows whose answers fail."""

from django.db import transaction

from controlplane.catalogue.datasets import deriving
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter
from controlplane.catalogue.datasets.work_queue import REFERENCES_TASK, send_on_commit
from controlplane.catalogue.references.judging import judges
from controlplane.catalogue.references.models import ReferenceCheck
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.platform.accounts.models import User


def start(version: DatasetVersion, rewards: RewardVersion, user: User) -> ReferenceCheck:
    """Queue a check, or return the live one of the same versions. Raises DatasetError if there is nothing to check."""
    if "answer" not in version.columns and not (version.mapping or {}).get("answer"):
        raise DatasetError(f"{version} has no answers. Map a column to the answer first.")
    if all(judge.skipped for judge in judges(rewards.components)):
        raise DatasetError(f"No component of {rewards} can score an answer here.")
    same_checks = ReferenceCheck.objects.filter(dataset_version=version, reward_version=rewards)
    with transaction.atomic():
        live = same_checks.filter(status__in=ReferenceCheck.LIVE).first()
        if live is not None:
            return live
        check = ReferenceCheck.objects.create(dataset_version=version, reward_version=rewards, created_by=user)
        send_on_commit(REFERENCES_TASK)
    return check


def stop(check: ReferenceCheck) -> bool:
    """Stop a check, which takes effect after the current batch; return False if it had already ended."""
    live = ReferenceCheck.objects.filter(pk=check.pk, status__in=ReferenceCheck.LIVE)
    return bool(live.update(status=ReferenceCheck.STOPPED))


def leave_out(check: ReferenceCheck, user: User) -> DatasetVersion:
    """Derive a version without the rows whose answers fail. Raises DatasetError if the check is still running, or if no
    row or every row would be left out."""
    if check.live:
        raise DatasetError("The check is still running. Stop it, or wait until it ends.")
    failed_rows = tuple(check.failures.order_by("row").values_list("row", flat=True).distinct())
    if not failed_rows:
        raise DatasetError("No answer fails, so there are no rows to leave out.")
    if len(failed_rows) >= check.dataset_version.rows:
        raise DatasetError("Every answer fails, so no row would be left.")
    reason = f"leaving out answers that fail {check.reward_version}"
    return deriving.derive(user, check.dataset_version, RowFilter(left_out=failed_rows), why=reason)
