"""A run as a document (a spec as YAML or JSON, or a config of another tool) on its way through the New run form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from django.http import QueryDict
from ninja import Field

from controlplane.catalogue.exchange.own import OF_AN_ATTEMPT
from controlplane.catalogue.exchange.reading import Note, Unreadable, Verdict
from controlplane.catalogue.hardware import inspections
from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import User
from runs.api import shapes
from runs.api.access import Problem
from runs.api.shapes import RequestBody, Value
from runs.engine.idempotency import key_of_api, launch_once
from runs.engine.models import Priority, Run, RunGroup
from runs.engine.scheduling.limits import QueueFull
from runs.engine.spec import LaunchRequest, freeze, spec_of
from runs.launch import preflight
from runs.launch.new_run import importing, past_runs, prefill, several
from runs.launch.new_run.drafting import Checked, host_to_ask, schema_of
from runs.launch.new_run.fields.training_fields import TRAINING
from runs.launch.new_run.forms import LaunchForm
from runs.launch.preflight.finding import Finding, Grade
from workers.contract.run.learnability import CHECK
from workers.contract.stack.training_rules import TRL_DEFAULTS
from workers.contract.wire.documents import ContractError

KINDS = {"train": "train", "check": CHECK}
PRIORITIES = {"high": Priority.HIGH, "normal": Priority.NORMAL, "low": Priority.LOW}


class RunDocument(RequestBody):
    """A run to launch or to check: `spec` or `document`, and what is to differ from it."""

    spec: dict[str, Any] | None = Field(None, description="A run's spec, as /runs/{id}/spec answers it.")
    document: str = Field(
        "",
        description="Or a text: the spec as YAML, an Axolotl, TRL or accelerate YAML, a command line or a script.",
    )
    set: dict[str, Value] = Field(
        {}, description="Fields of the New run form: dataset_version, reward_version and profile by id, max_steps, …"
    )
    name: str = Field("", max_length=120)
    host: str = Field("", max_length=64, description="A host's name; empty: any that fits.")
    priority: Literal["high", "normal", "low"] = "normal"
    kind: Literal["train", "check"] | None = Field(
        None, description="check: sample only, to see what can be learned. None: as the spec says, or train."
    )
    accept_notes: bool = Field(False, description="Launch although parts of the document can't be taken.")


@dataclass(frozen=True)
class Draft:
    form: LaunchForm
    checked: Checked
    findings: list[Finding]
    """Of its run, or of the several runs that its settings make."""
    parts: list[several.Part]
    """Of several runs; a learnability check is a single one."""
    kind: str
    notes: list[Note]
    """Parts of the document that weren't taken as they are."""
    complete: bool
    """It is one of our own documents, which says everything."""
    grpo: dict[str, Any]
    """GRPOConfig's arguments, as the document writes them."""
    schema: dict[str, Any] | None

    def answer(self) -> dict[str, Any]:
        blocked = preflight.blocks(self.findings) or not self.form.is_valid() or bool(self.refusing)
        return {
            "launchable": not blocked,
            "findings": [shapes.finding(each) for each in self.findings],
            "notes": [{"verdict": each.verdict.value, "key": each.key, "text": each.text} for each in self.notes],
        }

    def asks(self) -> bool:
        """Whether a host is looking at the model: it is asked, as on the page, if none has answered lately."""
        about, host = self.checked.draft, host_to_ask(self.form)
        if not about.model or about.inspection is not None or host is None:
            return False
        try:
            inspections.request_inspection(host, about.model, revision=str(self.form.row("revision") or ""))
        except inspections.HostAway:
            return False
        return True

    def expected(self) -> dict[str, Any] | None:
        time = past_runs.expected(self.checked.draft, self.checked.hosts)
        if time is None:
            return None
        return {
            "host": time.host.name,
            "to_ask": time.host.to_ask,
            "step_s": time.step_s,
            "seconds": time.seconds,
            "gpu_hours": time.gpu_hours,
            "cost": str(time.cost) if time.cost else None,
            "by_run": time.past.id if time.past else None,
        }

    def request(self) -> LaunchRequest:
        """What the form makes of it; of our own documents, with the arguments as they are written there, so that a spec
        launches the very same spec. The form writes some of TRL's defaults down, and leaves others out."""
        request = replace(self.checked.request, kind=self.kind)
        if not self.complete:
            return request
        left = {one.name: prefill.left_to_trl(one, self.schema) for one in TRAINING}
        defaults = {**TRL_DEFAULTS, **left, **((self.schema or {}).get("defaults") or {})}
        made = {name: value for name, value in request.grpo.items() if name in self.grpo or defaults.get(name) != value}
        same = {
            name: value
            for name, value in self.grpo.items()
            if (made[name] == value if name in made else name in defaults and defaults[name] == value)
        }
        return replace(request, grpo={**same, **{name: value for name, value in made.items() if name not in same}})

    @property
    def refusing(self) -> list[Note]:
        """Notes that make it another run than the document says."""
        hard = {Verdict.WRONG, Verdict.CONTRADICTION, Verdict.UNKNOWN}
        hard |= {Verdict.LEFT_OUT} if self.complete else set()
        return [each for each in self.notes if each.verdict in hard]


def read(wanted: RunDocument, user: User) -> Draft:
    """Raises Problem if it can't be read at all."""
    host = _host(wanted.host)
    schema = schema_of(host)
    first = prefill.as_sent(LaunchForm(initial=prefill.from_query(QueryDict()), schema=schema))
    content = json.dumps(wanted.spec) if wanted.spec is not None else wanted.document
    data, notes, complete, grpo = {**first}, list[Note](), False, dict[str, Any]()
    if content:
        try:
            imported = importing.read(content.encode(errors="replace"), first, schema)
        except Unreadable as error:
            raise Problem(422, str(error), where="document", fix="Send a run's spec, or a config.") from None
        complete, grpo = imported.reading.complete, imported.reading.below("grpo")
        notes = [each for each in imported.reading.notes if each.key not in OF_AN_ATTEMPT]
        data = imported.data
    chosen = {name: importing.sent(value) for name, value in wanted.set.items() if value is not None}
    data |= chosen | {"host": str(host.pk) if host else "", "priority": str(PRIORITIES[wanted.priority].value)}
    if wanted.name:
        data["name"] = wanted.name
    if unknown := set(wanted.set) - set(LaunchForm(schema=schema).fields):
        raise Problem(422, f"The New run form has no field {min(unknown)[:80]}.", where="set")
    # What was chosen by hand needs no more words.
    notes = [each for each in notes if importing.field_of(each.path) not in chosen and each.path not in chosen]
    form = LaunchForm(data, schema=schema)
    kind = KINDS.get(wanted.kind or str((wanted.spec or {}).get("kind")), "train")
    checks = several.check(form, user, kind)
    return Draft(form, checks.checked, checks.findings, checks.parts, kind, notes, complete, grpo, schema)


def launch(wanted: RunDocument, user: User, idempotency_key: str) -> tuple[Run, bool, Draft]:
    """The run, whether this call launched it, and its draft. Raises Problem."""
    draft = read(wanted, user)
    if draft.parts:
        fix = "Leave seeds and grid out, or POST /api/v1/run-groups."
        raise Problem(422, "These settings make several runs.", where="set", fix=fix)
    request = draft.request()
    key = key_of_api(user, idempotency_key)
    # After preflight, which may have seen a queue that the first request has just filled.
    earlier = Run.every.filter(launch_key=key).first() if key else None
    if earlier is None:
        _refuse(draft, accept_notes=wanted.accept_notes)
    try:
        run, fresh = (earlier, False) if earlier else launch_once(request, user, key)
        if not fresh and freeze(request, run.pk) != spec_of(run):
            raise key_of_another("run")
    except ContractError as error:
        raise Problem(422, f"This can't be launched: {error}.", where="spec") from None
    except QueueFull as error:
        raise Problem(409, str(error), where="queue", fix="Wait until a run of yours has ended, or stop one.") from None
    return run, fresh, draft


def launch_several(wanted: RunDocument, user: User, idempotency_key: str) -> tuple[RunGroup, bool]:
    """The runs that `seeds` and `grid` make of it, all or none; False: an earlier call launched them. Raises
    Problem."""
    draft = read(wanted, user)
    key = key_of_api(user, idempotency_key)
    earlier = RunGroup.objects.filter(launch_key=key).first() if key else None
    if earlier is not None:
        return earlier, False
    _refuse(draft, accept_notes=wanted.accept_notes)
    if not draft.parts:
        raise Problem(422, "These settings make a single run.", where="set", fix="Set seeds or grid, or launch a run.")
    try:
        return several.launch(draft.parts, user, at_once=draft.form.row("at_once"), key=key)
    except ContractError as error:
        raise Problem(422, f"These runs can't be launched: {error}.", where="spec") from None
    except QueueFull as error:
        raise Problem(409, str(error), where="queue", fix="Wait until a run of yours has ended, or stop one.") from None


def key_of_another(what: str) -> Problem:
    fix = f"Send a new key for another {what}."
    return Problem(409, f"This key has launched another {what}.", where="Idempotency-Key", fix=fix)


def stop_at(findings: list[Finding], form: LaunchForm, more: Mapping[str, Any] | None = None) -> None:
    """Raises Problem with what stops a launch first."""
    stops = [each for each in findings if each.grade == Grade.STOP]
    if stops:
        raise Problem(422, stops[0].cause, where=stops[0].field, fix=stops[0].fix, more=more)
    if not form.is_valid():
        field, errors = next(iter(form.errors.items()))
        raise Problem(422, " ".join(map(str, errors)), where=field, fix=f"Send it in `set`: {field}.", more=more)


def _refuse(draft: Draft, *, accept_notes: bool) -> None:
    more = draft.answer()
    if draft.refusing and not accept_notes:
        note = draft.refusing[0]
        fix = "Change the document, choose it in `set`, or send accept_notes."
        raise Problem(422, note.text, where=note.key or "document", fix=fix, more=more)
    stop_at(draft.findings, draft.form, more)


def _host(name: str) -> Host | None:
    if not name:
        return None
    host = Host.objects.filter(name=name).first() if "\0" not in name else None
    if host is None:
        raise Problem(422, f"There is no host {name}.", where="host", fix="GET /api/v1/hosts lists them.")
    return host
