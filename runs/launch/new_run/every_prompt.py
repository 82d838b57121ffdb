"""A learnability check with the settings of another one, over every training prompt; one for each check."""

from dataclasses import dataclass, replace

from controlplane.platform.accounts.models import User
from runs.engine.idempotency import launch_once
from runs.engine.models import Run
from runs.launch import preflight
from runs.launch.new_run import prefill, several
from runs.launch.new_run.drafting import schema_of
from runs.launch.new_run.forms import LaunchForm
from runs.launch.new_run.several import Checks
from workers.contract.run.learnability import CHECK


@dataclass(frozen=True)
class EveryPrompt:
    form: LaunchForm
    checks: Checks
    run: Run | None = None
    """None: preflight stops it."""
    fresh: bool = False
    """True if this call launched it."""


def check(run: Run, user: User) -> EveryPrompt:
    """Launch the check, once for each run. Raises ContractError, QueueFull."""
    schema = schema_of(run.host)
    initial = prefill.from_run(run, schema)
    form = LaunchForm(prefill.as_sent(LaunchForm(initial=initial, schema=schema)), schema=schema)
    checks = several.check_single(form, user)
    if not form.is_valid() or preflight.blocks(checks.findings):
        return EveryPrompt(form, checks)
    rows = run.dataset_version.rows - run.dataset_version.validation_rows
    request = replace(checks.checked.request, kind=CHECK, check_groups=rows)
    launched, fresh = launch_once(request, user, f"every-{run.pk}")
    return EveryPrompt(form, checks, launched, fresh)
