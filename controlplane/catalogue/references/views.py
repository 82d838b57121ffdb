"""Pages of reference checks: the list with the form that starts one, and a check's result."""

from typing import Any

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.queries import ready_versions
from controlplane.catalogue.references import showing, starting
from controlplane.catalogue.references.models import ReferenceCheck
from controlplane.catalogue.references.showing import check_for, checks_for
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned.queries import offered_versions
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.middleware import STOP_POLLING

MAX_LISTED = 50
PAGE_SIZE = 50
DELETED = {"invalid_choice": "This no longer exists. Choose another."}


class CheckForm(forms.Form):
    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["dataset_version"] = forms.ModelChoiceField(
            ready_versions(request),
            label="Dataset",
            empty_label="choose a dataset",
            error_messages=DELETED,
            help_text="Each row's answer is scored as if the model had written it.",
        )
        self.fields["reward_version"] = forms.ModelChoiceField(
            RewardVersion.objects.none(),
            label="Reward config",
            empty_label="choose rewards",
            error_messages=DELETED,
            help_text="Components that compare with the answer or run the row's tests are used.",
        )
        self.fields["reward_version"].queryset = offered_versions(RewardVersion, self["reward_version"].value())  # type: ignore[attr-defined]


@require_http_methods(["GET", "HEAD", "POST"])
def reference_checks(request: HttpRequest) -> HttpResponseBase:
    """Show the form and the checks, filtered by ?dataset_version= and ?reward_version=; start a check on POST."""
    if request.method == "POST":
        return _start(request)
    return _page(request, CheckForm(request, initial=request.GET.dict()))


@operator_required
def _start(request: HttpRequest) -> HttpResponseBase:
    form = CheckForm(request, request.POST)
    if not form.is_valid():
        return _page(request, form, status=422)
    try:
        version, rewards = form.cleaned_data["dataset_version"], form.cleaned_data["reward_version"]
        return redirect(starting.start(version, rewards, person(request)))
    except DatasetError as error:
        form.add_error(None, str(error))
        return _page(request, form, status=422)


@require_safe
def reference_check(request: HttpRequest, check_id: int) -> HttpResponse:
    """Show a check; htmx requests get only the result, and stop polling once the check has ended."""
    check = check_for(request, check_id)
    components = showing.components(check)
    component = request.GET.get("component", "")
    if component not in [result.judge.name for result in components]:
        component = ""
    failures = check.failures.filter(component=component) if component else check.failures.all()
    context = {
        "check": check,
        "version": check.dataset_version,
        "components": components,
        "verdict": showing.verdict(check),
        "component": component,
        "failures": Paginator(failures, PAGE_SIZE).get_page(request.GET.get("page")),
        "may_operate": person(request).may_operate,
    }
    if request.headers.get("HX-Request") == "true":
        return render(request, "catalogue/references/_result.html", context, status=200 if check.live else STOP_POLLING)
    return render(request, "catalogue/references/check.html", context)


@require_POST
@operator_required
def stop(request: HttpRequest, check_id: int) -> HttpResponseBase:
    check = check_for(request, check_id)
    if not starting.stop(check):
        messages.info(request, "The check had already ended.")
    return redirect(check)


@require_POST
@operator_required
def leave_out(request: HttpRequest, check_id: int) -> HttpResponseBase:
    check = check_for(request, check_id)
    try:
        return redirect(starting.leave_out(check, person(request)))
    except DatasetError as error:
        messages.error(request, str(error))
        return redirect(check)


def _page(request: HttpRequest, form: CheckForm, status: int = 200) -> HttpResponse:
    checks = checks_for(request)
    for name in ("dataset_version", "reward_version"):
        number = request.GET.get(name, "")
        if number.isascii() and number.isdigit() and len(number) < 18:
            checks = checks.filter(**{name: int(number)})
    context = {
        "form": form,
        "checks": checks[:MAX_LISTED],
        "live": ReferenceCheck.LIVE,
        "may_operate": person(request).may_operate,
    }
    return render(request, "catalogue/references/list.html", context, status=status)
