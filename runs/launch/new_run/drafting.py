"""Drafts of launches for preflight, made from the choices and the catalogue, and the forecast of their placement."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from django import forms

from controlplane.catalogue.datasets import tool_templates
from controlplane.catalogue.datasets.corpora.queries import specs_of
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.tool_templates import ToolTemplate
from controlplane.catalogue.hardware import inspections
from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.hardware.profile_pages.profile_words import ProfileGroup, group_of
from controlplane.catalogue.hardware.profiles import launch_values, profile_of
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned.queries import offered_versions
from controlplane.platform.accounts import vault
from controlplane.platform.accounts.models import User
from runs.engine import sentences
from runs.engine.hosts.view import HostView, host_views
from runs.engine.machines import demand
from runs.engine.models import Run
from runs.engine.scheduling import gpu_queue, launching, leasing, limits
from runs.engine.scheduling.leasing import Shortage
from runs.engine.scheduling.limits import Allowance
from runs.engine.spec import LaunchRequest, hardware_of, rewards_of, with_aggregation
from runs.engine.warm.idle import IdleServers
from runs.launch import preflight
from runs.launch.new_run import facts, prefill
from runs.launch.new_run.choices import REQUIRED_CHOICES, LaunchChoices
from runs.launch.new_run.fields.choice_fields import offered_datasets, offered_profiles
from runs.launch.new_run.forms import LaunchForm
from runs.launch.new_run.spec_values import field_of
from runs.launch.preflight import choosing
from runs.launch.preflight.draft import Draft, OtherProfile
from runs.launch.preflight.finding import Finding, stop
from runs.launch.preflight.hosts import machine_to_ask, shortage
from workers.contract.run.overlapping import with_correction
from workers.contract.run.spec import DataSpec, ModelSpec, Placement, RewardSpec, RunSpec
from workers.contract.wire.documents import ContractError


@dataclass(frozen=True)
class Forecast:
    """The effect of the launch button: the run starts now, or is queued."""

    starts_now: bool
    button: str
    waits: str = ""
    """Sentence under the button that says what the run would wait for."""
    placement: Placement | None = None


def draft_of(
    request: LaunchRequest,
    *,
    hosts: list[HostView],
    made_for: Mapping[str, str] | None = None,
    owner: Allowance | None = None,
) -> Draft:
    """Build the draft of a launch. `hosts` are those that may take the run; `made_for` holds the form values of the
    chosen profile."""
    holds, rewards = leasing.leased(), _rewards(request.reward_version)
    eval_rewards = _rewards(request.eval_reward_version) or ()
    all_rewards = (*(rewards or ()), *(eval_rewards if request.eval_rows else ()))
    model, hardware, grpo = request.model_spec, request.hardware, dict(request.grpo)
    grpo = with_aggregation(request.reward_version, grpo) if request.reward_version else grpo
    inspection = _inspected(hosts, model)
    draft = Draft(
        model=model.path,
        inspection=inspection,
        hosts=tuple(facts.host_facts(view, holds[view.row.pk], facts.kept_memory_on(view, hardware)) for view in hosts),
        host_chosen=request.host is not None,
        data=facts.data_facts(request.dataset_version),
        mix=facts.mix_facts(request),
        rewards=rewards,
        secrets={name: problem for name in vault.names_in(all_rewards) if (problem := vault.problem(name))},
        hardware=hardware,
        hardware_problem=_hardware_problem(request),
        profiles=_profiles(),
        made_for=dict(made_for or {}),
        eval_rows=request.eval_rows,
        eval_rewards=eval_rewards,
        priority=request.priority,
        owner=owner,
        corpus_problem=_corpus_problem(request),
        tool_template=_tool_template(request, model, inspection),
        **{**request.chosen_settings(), "grpo": with_correction(grpo, request.ahead)},
    )
    if hardware is None or request.host is not None:
        return draft
    sources = demand.offered_for(leasing.need_of(hardware, draft.every_entry))
    return replace(draft, machines=tuple(facts.machine_facts(source) for source in sources))


def with_idle(draft: Draft, user: User, request: LaunchRequest, hosts: list[HostView]) -> Draft:
    """Return the draft with the user's idle warm servers that the run could use."""
    if draft.hardware is None:
        return draft
    spec = RunSpec(
        run_id="",
        name="",
        kind=request.kind,
        model=request.model_spec,
        data=DataSpec("", 0, "", 0),
        rewards=(),
        hardware=draft.hardware,
        **draft.chosen_settings(),
    )
    fresh_rows = [view.row for view in hosts if view.fresh]
    return replace(draft, idle=tuple(IdleServers.read().for_run(user.pk, spec, fresh_rows)))


@dataclass(frozen=True)
class CheckedChoices:
    """A launch's choices, read once: the request, its draft for preflight, and the hosts that may take the run."""

    request: LaunchRequest
    draft: Draft
    hosts: list[HostView]


def checked(choices: LaunchChoices, user: User | None = None) -> CheckedChoices:
    """Build the request and the draft for choices, omitting invalid values. `user` is the person who would launch."""
    choices.is_valid()
    request, hosts = choices.request(), candidate_hosts(choices.chosen("host"))
    owner = limits.allowance(user) if user else None
    draft = draft_of(request, hosts=hosts, made_for=prefill.made_for(request.profile), owner=owner)
    draft = replace(draft, owner_administers=user is None or user.may_administer)
    if user is not None:
        draft = with_idle(draft, user, request, hosts)
    return CheckedChoices(request, draft, hosts)


def with_only_choices(initial: dict[str, Any], hosts: list[HostView], user: User) -> dict[str, Any]:
    """Preselect the model, dataset or reward config if only one is offered, and one of the profiles for which a host
    has the GPUs: the only one, or the one last used by this user or otherwise by anybody. Choices already made stay."""
    datasets = dict(offered_datasets().order_by("number").values_list("dataset", "pk"))  # the newest version of each
    choices: dict[str, list[Any]] = {
        "model": known_models(hosts),
        "dataset_version": list(datasets.values()),
        "reward_version": list(offered_versions(RewardVersion, None).values_list("pk", flat=True)),
    }
    preselected = {name: rows[0] for name, rows in choices.items() if len(rows) == 1}
    if not initial.get("profile"):
        machines = [facts.host_facts(view, {}, {}) for view in hosts]
        values = {row.key: row.values for row in _profiles() if not all(shortage(host, row.spec) for host in machines)}
        profile = next(iter(values)) if len(values) == 1 else _used_last(list(values), user)
        preselected |= {"profile": profile, **values[profile]} if profile else {}
    return preselected | initial


def _used_last(profiles: list[str], user: User) -> str:
    """Find the profile used last, by this user if possible; return "" if nobody has trained with any of these."""
    training_runs = Run.objects.filter(kind="train", profile__in=[int(key) for key in profiles]).order_by("-created_at")
    runs = training_runs.values_list("profile", flat=True)
    newest_run = runs.filter(owner=user).first() or runs.first()
    return str(newest_run or "")


def ranked_profiles(form: LaunchForm, draft: Draft) -> dict[str, str]:
    """Group the form's profiles by GPUs and memory, best fit first, and label each with its fit. Return the labels by
    profile key, so that the page can relabel the profiles when the model changes."""
    field = cast("forms.ModelChoiceField[HardwareProfile]", form.fields["profile"])
    specs = {profile.key: profile.spec for profile in draft.profiles}
    labels: dict[str, str] = {}
    groups: dict[ProfileGroup, list[str]] = {}
    fitting_groups: set[ProfileGroup] = set()
    for choice in choosing.choices(draft):
        key = choice.values["profile"]
        group = group_of(specs[key])
        labels[key] = f"{choice.name} · {choice.fit}"
        groups.setdefault(group, []).append(key)
        fitting_groups |= {group} if choice.fits else set()
    for row in field.queryset or ():
        if str(row.pk) not in labels:  # saved under an older contract
            labels[str(row.pk)] = f"{row.name} · open it and save it again"
            groups.setdefault(ProfileGroup(0, 0.0), []).append(str(row.pk))
    order = sorted(groups, key=lambda group: (group not in fitting_groups, group))
    options = [(str(group), [(key, labels[key]) for key in groups[group]]) for group in order]
    field.choices = [("", field.empty_label or ""), *options]
    return labels


def findings_of(choices: LaunchChoices, draft_check: CheckedChoices, user: User, kind: str = "train") -> list[Finding]:
    """List the errors of the choices, preflight's findings about fields without errors and, if none of these stops the
    launch, why it would be refused nevertheless. Missing choices are reported separately."""
    errors = [
        stop(name, " ".join(error.messages), "")
        for name, field_errors in choices.errors.as_data().items()
        for error in field_errors
        if not (name in REQUIRED_CHOICES and error.code == "required")
    ]
    findings = [finding for finding in preflight.check(draft_check.draft) if finding.field not in choices.errors]
    if not choices.is_valid() or preflight.blocks(findings):
        return errors + findings
    return [*refusals(replace(draft_check.request, kind=kind), user), *findings]


def refusals(request: LaunchRequest, user: User) -> list[Finding]:
    """Return the finding that says why a launch would be refused, or [] if it would be accepted."""
    problem = launching.refusal(request, user)
    path, _, _ = problem.partition(":")
    return [stop(field_of(path), f"This can't be launched: {problem}.", "")] if problem else []


def candidate_hosts(chosen_host: Host | None) -> list[HostView]:
    """List the hosts that may take the run, reachable ones first."""
    return sorted(host_views([chosen_host] if chosen_host else None), key=lambda view: (not view.fresh, view.name))


def schema_of(chosen_host: Host | None) -> dict[str, Any] | None:
    """Return the trainer's fields as reported by the chosen host, or otherwise by the first host that reported any."""
    return schema_among(candidate_hosts(chosen_host))


def schema_among(hosts: list[HostView]) -> dict[str, Any] | None:
    return next((view.row.trainer_schema for view in hosts if view.row.trainer_schema), None)


def host_to_ask(choices: LaunchChoices) -> Host | None:
    """Choose the reachable host to ask about the model: the chosen one, otherwise one that lists the model, otherwise
    any; return None if there is none."""
    hosts = [view for view in candidate_hosts(choices.chosen("host")) if view.fresh]
    listing_hosts = [view for view in hosts if choices.chosen("model") in view.models]
    return next((view.row for view in (*listing_hosts, *hosts)), None)


def known_models(views: list[HostView]) -> list[str]:
    return sorted({model for view in views for model in view.models})


def forecast(draft: Draft, hosts: list[HostView]) -> Forecast:
    """Forecast where the launch would start now, or what it would wait for behind the queue."""
    if machine := machine_to_ask(draft):
        return Forecast(False, "Queue run", f"It requests a machine from {machine.name}.")
    if draft.hardware is None or not hosts:
        return Forecast(False, "Launch run")
    capacity, runs_ahead = gpu_queue.capacity_behind(draft.priority)
    capacity.hosts = [view.row for view in hosts]
    if draft.owner is not None and not draft.owner.may_start:
        return Forecast(False, "Queue run", sentences.as_sentence(draft.owner.wait))
    result = capacity.find_with(leasing.need_of(draft.hardware, draft.every_entry), draft.hardware, None, draft.idle)
    if not isinstance(result, Shortage):
        host, placement = result
        warm = ", warm server" if placement.warm else ""
        return Forecast(True, f"Launch now on {host.name} · {_resources(placement)}{warm}", placement=placement)
    return Forecast(
        False, f"Queue: {runs_ahead} ahead" if runs_ahead else "Queue run", sentences.as_sentence(_wait_reason(result))
    )


def _wait_reason(shortage: Shortage) -> str:
    hold = shortage.hold
    if hold is None:
        return shortage.text
    return str(sentences.waiting_words(shortage.text, hold.how, hold.run_id, hold.run_name, hold.owner))


def per_turn_configs(form: LaunchForm) -> list[int]:
    """List the ids of the offered reward configs with a component that scores each turn."""
    field = cast("forms.ModelChoiceField[Any]", form.fields["reward_version"])
    versions = field.queryset or ()
    return [version.pk for version in versions if any(reward.per_turn for reward in _rewards(version) or ())]


def _profiles() -> tuple[OtherProfile, ...]:
    """Read every profile of the catalogue except those saved under an older contract."""
    profiles = []
    for row in offered_profiles():
        try:
            profile, values = profile_of(row), launch_values(row)
        except ContractError:
            continue
        profiles.append(OtherProfile(str(row.pk), profile.spec, profile.lora, dict(profile.batch), values))
    return tuple(profiles)


def _resources(placement: Placement) -> str:
    name, numbers = ("GPU", placement.every_gpu) if placement.every_gpu else ("CPU slot", placement.cpu_slots)
    return f"{name} {','.join(map(str, numbers))}"


def _inspected(hosts: list[HostView], model: ModelSpec) -> dict[str, Any] | None:
    if not model.path:
        return None
    rows = (inspections.latest_inspection(view.row, model.path, model.revision or "") for view in hosts)
    results = [row.answer for row in rows if row is not None and isinstance(row.answer, dict)]
    # Any host may take the run, so one that has the model is enough.
    return next((result for result in results if result.get("ok")), results[0] if results else None)


def _hardware_problem(request: LaunchRequest) -> str:
    try:
        if request.profile is not None:
            hardware_of(request.profile)
    except ContractError as error:
        return str(error)
    return ""


def _corpus_problem(request: LaunchRequest) -> str:
    try:
        specs_of(request.episodes.parts if request.episodes else ())
    except DatasetError as error:
        return str(error)
    return ""


def _tool_template(request: LaunchRequest, model: ModelSpec, inspection: dict[str, Any] | None) -> ToolTemplate | None:
    """Read the model's chat template; return None for a run without episodes or with ones driven by other programs."""
    if request.episodes is None or request.episodes.gateway or not model.path:
        return None
    model_type = str((inspection or {}).get("model_type") or "")
    return tool_templates.of_model(model.path, model_type, revision=model.revision or "")


def _rewards(version: RewardVersion | None) -> tuple[RewardSpec, ...] | None:
    if version is None:
        return None
    try:
        return rewards_of(version)
    except ContractError:
        return ()
