"""Actions on a whole version: cancel its current step, retry, archive, delete."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from controlplane.catalogue.datasets import actions, archiving
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import Dataset
from controlplane.catalogue.datasets.queries import version_for
from controlplane.platform.accounts.roles import operator_required


@operator_required
@require_POST
def cancel(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    version = version_for(request, dataset_id, number)
    outcome = actions.cancel(version)
    if outcome == actions.TOO_LATE:
        messages.warning(request, "The step had already finished.")
        return redirect(version)
    if outcome == actions.BACK_TO_MAPPING:
        messages.info(request, "Canceled. Nothing was imported, and the mapping is unchanged.")
        return redirect(version)
    messages.info(request, f"Canceled. {version.file_name} was deleted.")
    remains = Dataset.objects.filter(pk=dataset_id).exists()
    return redirect("dataset", dataset_id) if remains else redirect("datasets")


@operator_required
@require_POST
def try_again(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    version = version_for(request, dataset_id, number)
    if not actions.try_again(version):
        messages.warning(request, "Nothing can be retried: the file itself is the problem, or the step has finished.")
    return redirect(version)


@operator_required
@require_POST
def archive(request: HttpRequest, dataset_id: int, number: int, archived: bool) -> HttpResponse:
    version = version_for(request, dataset_id, number)
    if archiving.set_archived(version, archived):
        messages.success(request, archiving.archived_sentence(f"Version {number}", archived))
    return redirect(version)


@operator_required
@require_POST
def delete_version(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    version = version_for(request, dataset_id, number)
    if archiving.is_the_whole_dataset(version):
        return redirect(f"{reverse('delete', args=['dataset'])}?id={dataset_id}")
    try:
        was_last = archiving.delete_version(version)
    except DatasetError as error:
        messages.error(request, str(error))
        return redirect(version)
    if was_last:
        messages.success(request, f"Deleted {version.dataset.name} with all its versions.")
        return redirect("datasets")
    messages.success(request, f"Deleted version {number}.")
    return redirect("dataset", dataset_id)
