"""Access to checks of reference answers: the only way for views to get one."""

from django.db.models import QuerySet
from django.http import HttpRequest
from django.shortcuts import get_object_or_404

from controlplane.catalogue.references.models import ReferenceCheck


def checks_for(request: HttpRequest) -> QuerySet[ReferenceCheck]:
    """Find all checks, for every signed-in user, the newest first."""
    if not request.user.is_authenticated:
        return ReferenceCheck.objects.none()
    return ReferenceCheck.objects.select_related(
        "dataset_version__dataset", "reward_version__config", "created_by"
    ).defer("dataset_version__report")


def check_for(request: HttpRequest, check_id: int) -> ReferenceCheck:
    return get_object_or_404(checks_for(request), pk=check_id)
