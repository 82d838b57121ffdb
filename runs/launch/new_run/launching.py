"""Launches from the New run page: each submission is checked, then launched once or refused."""

import hashlib
from dataclasses import dataclass, replace

from controlplane.platform.accounts.models import User
from runs.engine.idempotency import launch_once
from runs.engine.models import Run, RunGroup
from runs.engine.scheduling.limits import QueueFull
from runs.launch import preflight
from runs.launch.new_run import prefill, several
from runs.launch.new_run.drafting import schema_of
from runs.launch.new_run.forms import LaunchForm
from runs.launch.new_run.several import Checks
from runs.launch.preflight.finding import Finding, Grade
from workers.contract.run.learnability import CHECK
from workers.contract.wire.documents import ContractError


@dataclass(frozen=True)
class Submission:
    """The outcome of a submission. If it was refused, the reasons are in the form's errors and in `checks`."""

    checks: Checks
    launched: Run | RunGroup | None = None
    """The run, or the group of several runs; None if the submission was refused."""
    fresh: bool = False
    """True if this submission launched it, False if an earlier one did."""


def launch(form: LaunchForm, user: User, kind: str) -> Submission:
    """Launch the run or runs that the form describes, or add the reasons for a refusal to the form's errors."""
    checks = several.check(form, user, kind)
    # Looked up after preflight, which may have seen a queue just filled by the first request of a double click.
    key = _launch_key(form, user, several.KIND if checks.parts else kind) if form.is_valid() else None
    earlier_launch = (RunGroup.objects if checks.parts else Run.every).filter(launch_key=key).first() if key else None
    if earlier_launch is not None:
        return Submission(checks, earlier_launch)
    if form.is_valid() and not preflight.blocks(checks.findings):
        launched: tuple[Run | RunGroup, bool]
        try:
            if checks.parts:
                launched = several.launch(checks.parts, user, at_once=form.chosen("at_once"), key=key)
            else:
                launched = launch_once(replace(checks.checked.request, kind=kind), user, key)
            return Submission(checks, *launched)
        except ContractError as error:
            form.add_error(None, f"This can't be launched: {error}.")
        except QueueFull as error:
            form.add_error(None, str(error))
    _add_stops(form, checks.findings)
    return Submission(checks)


def _add_stops(form: LaunchForm, findings: list[Finding]) -> None:
    """Add the findings that stop the launch to the errors of their fields, unless these already have errors."""
    fields_with_errors = set(form.errors)
    for finding in findings:
        if finding.grade == Grade.STOP and finding.field not in fields_with_errors:
            field = finding.field if finding.field in form.fields else None
            form.add_error(field, f"{finding.cause} {finding.fix}".strip())


def _launch_key(form: LaunchForm, user: User, kind: str) -> str | None:
    """Hash user, page, kind and values to recognise a repeated submission; return None without a page key."""
    page = form.chosen("key")
    if not page:
        return None
    values = sorted((name, value) for name, value in form.data.items() if name != "csrfmiddlewaretoken")
    return hashlib.sha256(repr((user.pk, page, kind, values)).encode()).hexdigest()


def form_of(run: Run) -> LaunchForm:
    """Build a bound form with the settings of a run. Raises ContractError if this version can't read its spec."""
    schema = schema_of(run.host)
    return prefill.submitted_form(LaunchForm(initial=prefill.from_run(run, schema), schema=schema))


def check_every_prompt(check: Run, form: LaunchForm, user: User) -> Submission:
    """Launch a learnability check with the settings of `check` but over every training prompt, at most once for each
    check. Raises ContractError if the request is invalid, and QueueFull if the user may not queue more runs."""
    checks = several.check_single(form, user)
    if not form.is_valid() or preflight.blocks(checks.findings):
        return Submission(checks)
    rows = check.dataset_version.rows - check.dataset_version.validation_rows
    request = replace(checks.checked.request, kind=CHECK, check_groups=rows)
    return Submission(checks, *launch_once(request, user, f"every-{check.pk}"))
