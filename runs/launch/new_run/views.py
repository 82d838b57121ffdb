"""The New run page: the form, live preflight, model inspection, commands, and clones."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.catalogue.hardware import inspections
from controlplane.catalogue.hardware.models import Host, ModelInspection
from controlplane.platform.accounts.models import Role, User
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.streams import file_response
from runs.engine import checkpoints, queries
from runs.engine.models import Run
from runs.engine.scheduling.limits import QueueFull
from runs.insight import diagnosis
from runs.launch.new_run import drafting, fixing, launching, prefill, several
from runs.launch.new_run.dry_run import DryRun, NothingToShow, commands_of, of_form, of_run, write
from runs.launch.new_run.fields.choice_fields import row_by_id
from runs.launch.new_run.forms import LaunchForm
from runs.launch.new_run.launching import Submission
from runs.launch.new_run.panel import panel_of
from runs.launch.new_run.several import Checks
from runs.launch.preflight import choosing
from runs.launch.preflight.checks.limits import ALWAYS_LOGGED
from runs.launch.preflight.finding import Finding
from workers.contract.run.evaluation import OTHER_REWARD
from workers.contract.run.learnability import CHECK
from workers.contract.wire.documents import ContractError


@require_http_methods(["GET", "HEAD", "POST"])
def new_run(request: HttpRequest) -> HttpResponseBase:
    """Show the New run page, or launch from it. Viewers see who may launch instead."""
    if request.method == "POST":
        return _send(request, "train")
    if not person(request).may_operate:
        return _viewer_page(request)
    hosts = drafting.candidate_hosts(None)
    initial = drafting.with_only_choices(prefill.from_query(request.GET), hosts, person(request))
    form = LaunchForm(initial=initial, schema=drafting.schema_among(hosts))
    return page(request, form)


@require_safe
def clone(request: HttpRequest, run_id: str) -> HttpResponseBase:
    if not person(request).may_operate:
        return _viewer_page(request)
    run = queries.run_for(request, run_id)
    schema = drafting.schema_of(run.host)
    try:
        initial = prefill.from_run(run, schema)
    except ContractError as error:
        messages.error(request, f"{run.name} can't be cloned, because another version wrote its spec ({error}).")
        return redirect("run", run.pk)
    checkpoint = checkpoints.find(run, request.GET.get("checkpoint", ""))
    if checkpoint is not None:
        initial |= {"start_from": checkpoint.folder, "host": checkpoint.event.attempt.host_id}
    applied_fix = _fix(request, run, initial, schema)
    form = LaunchForm(initial=initial, schema=schema)
    if applied_fix is not None:
        fixing.mark(form, applied_fix)
    return page(request, form, clone_of=run, changed=prefill.changed_since(run), fixed=applied_fix)


@require_safe
@operator_required
def fix(request: HttpRequest, run_id: str) -> HttpResponse:
    """Show, for the failure card, what a diagnosis's fix would change in a clone of the run."""
    run = queries.run_for(request, run_id)
    schema = drafting.schema_of(run.host)
    try:
        applied_fix = _fix(request, run, prefill.from_run(run, schema), schema)
    except ContractError:  # the card says that the spec can't be read
        applied_fix = None
    if applied_fix is None:
        return HttpResponse(status=204)
    changes = [{"name": change.label, "before": change.old, "after": change.new} for change in applied_fix.changes]
    return render(request, "launch/new_run/_fix.html", {"fixed": applied_fix, "changes": changes})


def _fix(request: HttpRequest, run: Run, initial: dict[str, Any], schema: Any) -> fixing.AppliedFix | None:
    """Change the initial values as the requested diagnosis proposes; return None if the run has no such diagnosis."""
    entry_with_values = diagnosis.values_of(run.latest(), request.GET.get("fix", ""))
    if not entry_with_values:
        return None

    def findings(form: LaunchForm) -> list[Finding]:
        return several.check_single(prefill.submitted_form(form), person(request)).findings

    return fixing.fix(initial, *entry_with_values, schema, findings)


def _viewer_page(request: HttpRequest) -> HttpResponse:
    operators = User.objects.filter(is_active=True, role__in=[Role.OPERATOR, Role.ADMIN]).order_by("username")
    return render(request, "launch/new_run/viewer.html", {"operators": operators.values_list("username", flat=True)})


@require_POST
@operator_required
def check_learnability(request: HttpRequest) -> HttpResponseBase:
    """Launch a learnability check with the settings in the form."""
    return _send(request, CHECK)


@require_POST
@operator_required
def check_every_prompt(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Launch a check of every training prompt with the settings of an earlier check, at most once for each."""
    run, user = queries.run_for(request, run_id), person(request)
    try:
        form = launching.form_of(run)
        submission = launching.check_every_prompt(run, form, user)
    except (ContractError, QueueFull) as error:
        messages.error(request, f"The check can't be launched: {error}")
        return redirect("learnability", run.pk)
    return _respond(request, form, submission, clone_of=run)


@operator_required
def _send(request: HttpRequest, kind: str) -> HttpResponseBase:
    form = bound_form(request)
    return _respond(request, form, launching.launch(form, person(request), kind))


def _respond(request: HttpRequest, form: LaunchForm, submission: Submission, **extra: Any) -> HttpResponseBase:
    launched = submission.launched
    if launched is None:
        return page(request, form, checks=submission.checks, status=422, **extra)
    if not submission.fresh:
        here = "here is its run" if isinstance(launched, Run) else "here are its runs"
        messages.info(request, f"This launch was already submitted; {here}.")
    if isinstance(launched, Run):
        return redirect("learnability" if launched.kind == CHECK else "run", launched.pk)
    ids = list(launched.runs.order_by("created_at", "pk").values_list("pk", flat=True))
    if submission.fresh:
        messages.success(request, f"{len(ids)} runs launched. Their curves appear here after their first steps.")
    return redirect(f"{reverse('compare_runs')}?runs={','.join(ids)}")


@require_POST
@operator_required
def check_run(request: HttpRequest) -> HttpResponse:
    """Render the Preflight panel for the current form, without storing anything."""
    form = bound_form(request)
    panel = panel_of(form, several.check(form, person(request)))
    return render(request, "launch/new_run/_preflight.html", panel)


@require_POST
@operator_required
def choose_profile(request: HttpRequest) -> HttpResponse:
    draft = drafting.checked(bound_form(request), person(request)).draft
    choices = choosing.choices(draft)
    unfit = [choice for choice in choices if not (choice.fits or choice.chosen)]
    return render(request, "launch/new_run/_choices.html", {"choices": choices, "unfit": unfit, "model": draft.model})


@require_POST
@operator_required
def commands(request: HttpRequest) -> HttpResponse:
    """Show the commands of this launch's processes, for the placement it would get now."""
    form = bound_form(request)
    return render(request, "launch/new_run/_commands_answer.html", commands_of(lambda: of_form(form)))


@require_POST
@operator_required
def dry_run(request: HttpRequest) -> HttpResponseBase:
    """Send this launch as a .zip that trains without the control plane."""
    form = bound_form(request)
    try:
        return _archive(request, of_form(form))
    except (NothingToShow, ContractError) as error:
        return show_refusal(request, form, f"A dry run isn't possible yet: {error}")


def _archive(request: HttpRequest, dry: DryRun) -> HttpResponseBase:
    return file_response(request, write(dry), "application/zip", save_as=f"{dry.file_name}.zip")


def show_refusal(request: HttpRequest, form: LaunchForm, error: str) -> HttpResponse:
    """Show the page again with an error for the form as a whole. The form may be incomplete."""
    form.is_valid()
    form.add_error(None, error)
    return page(request, form, checks=several.check_single(form, person(request)), status=422)


@require_safe
def run_dry_run(request: HttpRequest, run_id: str) -> HttpResponseBase:
    run = queries.run_for(request, run_id)
    try:
        return _archive(request, of_run(run))
    except (NothingToShow, ContractError) as error:
        messages.error(request, f"A dry run of {run.name} isn't possible: {error}")
        return redirect("run", run.pk)


@require_POST
@operator_required
def inspect_model(request: HttpRequest) -> HttpResponse:
    form = bound_form(request)
    form.is_valid()
    model, revision = str(form.chosen("model") or ""), str(form.chosen("revision") or "")
    host = drafting.host_to_ask(form)
    context: dict[str, Any] = {"model": model, "host": host}
    is_again = bool(request.POST.get("again"))
    if model and host:
        try:
            context["inspection"] = inspections.request_inspection(host, model, revision=revision, force=is_again)
        except inspections.HostAway:
            context["away"] = True
    return render(request, "launch/new_run/_inspection.html", context)


@require_safe
def inspection(request: HttpRequest, inspection_id: int) -> HttpResponse:
    """Show an inspection; the page polls it until the host has responded."""
    row = get_object_or_404(ModelInspection.objects.select_related("host"), pk=inspection_id)
    context = {"inspection": row, "model": row.model, "host": row.host, "overdue": inspections.is_overdue(row)}
    response = render(request, "launch/new_run/_inspection.html", context)
    if row.answered_at is not None:
        response["HX-Trigger"] = "inspected"
    return response


def bound_form(request: HttpRequest) -> LaunchForm:
    return LaunchForm(request.POST, schema=drafting.schema_of(row_by_id(Host, request.POST.get("host"))))


def page(
    request: HttpRequest,
    form: LaunchForm,
    *,
    checks: Checks | None = None,
    status: int = 200,
    shown_form: LaunchForm | None = None,
    **extra: Any,
) -> HttpResponse:
    """Render the page with `shown_form` in place of the checked form, if given. Without `checks`, the form's initial
    values are checked as if submitted."""
    submitted = form
    if checks is None:
        submitted = prefill.submitted_form(form)
        checks = several.check_single(submitted, person(request))
    panel, shown_form, draft_check = panel_of(submitted, checks), shown_form or form, checks.checked
    shown_form.fields["profile"].choices = submitted.fields["profile"].choices  # type: ignore[attr-defined]
    views = drafting.candidate_hosts(None) if draft_check.request.host else draft_check.hosts
    without_vllm = {profile.key for profile in draft_check.draft.profiles if profile.spec.vllm_share is None}
    context = {
        "form": shown_form,
        "models": drafting.known_models(views),
        "metrics": sorted({*ALWAYS_LOGGED, *(f"eval_{name}" for name in ("reward", "loss")), OTHER_REWARD}),
        "fillable": prefill.fillable_values(form),
        "per_turn": drafting.per_turn_configs(form),
        "vllm_profiles": [key for key in panel["fits"] if key not in without_vllm],
        **panel,
        **extra,
    }
    return render(request, "launch/new_run/new_run.html", context, status=status)
