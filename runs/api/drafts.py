"""A run to launch, as a program describes it: a document (a spec or another tool's config) and settings over it."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal

from ninja import Field

from controlplane.catalogue.exchange.own import ATTEMPT_KEYS
from controlplane.catalogue.exchange.reading import KeyVerdict, Note, UnreadableDocument
from controlplane.catalogue.hardware import inspections
from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import User
from runs.api import shapes
from runs.api.access import Problem, refusing
from runs.api.shapes import RequestBody, Value
from runs.engine.idempotency import key_of_api, launch_once
from runs.engine.models import Priority, Run, RunGroup
from runs.engine.scheduling.limits import QueueFull
from runs.engine.spec import LaunchRequest, freeze, spec_of
from runs.launch import preflight
from runs.launch.new_run import importing, past_runs, several
from runs.launch.new_run.choices import LaunchChoices, choices_of, launch_fields
from runs.launch.new_run.drafting import Checked, host_to_ask, schema_of
from runs.launch.new_run.fields.table import ARGUMENTS, BY_FIELD
from runs.launch.new_run.spec_values import field_of, left_to_trl
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
        {},
        description="Fields of the New run page, and the other arguments of GRPOConfig by TRL's names. Rows of the "
        "catalogue are given by id.",
        json_schema_extra={"properties": {name: field.json_schema() for name, field in BY_FIELD.items()}},
    )
    name: str = Field("", max_length=120)
    host: str = Field("", max_length=64, description="A host's name; empty: any that fits.")
    priority: Literal["high", "normal", "low"] = "normal"
    kind: Literal["train", "check"] | None = Field(
        None, description="check: sample only, to see what can be learned. None: as the spec says, or train."
    )
    accept_notes: bool = Field(False, description="Launch although parts of the document can't be taken.")


@dataclass(frozen=True)
class CheckedDocument:
    """A run document with its choices, its preflight, and notes on what was not taken."""

    choices: LaunchChoices
    checked: Checked
    findings: list[Finding]
    """Findings about its run, or about the several runs that its settings make."""
    parts: list[several.PlannedRun]
    """The several runs; [] for a single one, such as a learnability check."""
    kind: str
    notes: list[Note]
    """Parts of the document that weren't taken as they are."""
    complete: bool
    """True for a run's own spec, in which every setting is stated."""
    grpo: dict[str, Any]
    """GRPOConfig's arguments, as the document writes them."""
    schema: dict[str, Any] | None

    def answer(self) -> dict[str, Any]:
        blocked = preflight.blocks(self.findings) or not self.choices.is_valid() or bool(self.refusing)
        return {
            "launchable": not blocked,
            "findings": [shapes.finding(finding) for finding in self.findings],
            "notes": [{"verdict": note.verdict.value, "key": note.key, "text": note.text} for note in self.notes],
        }

    def asks(self) -> bool:
        """Ask a host about the model, as the page does, unless one has answered lately. True while an answer is due."""
        about, host = self.checked.draft, host_to_ask(self.choices)
        if not about.model or about.inspection is not None or host is None:
            return False
        try:
            inspections.request_inspection(host, about.model, revision=str(self.choices.chosen("revision") or ""))
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
            **shapes.columns(time, "step_s", "seconds", "gpu_hours"),
            "cost": str(time.cost) if time.cost else None,
            "by_run": time.past.id if time.past else None,
        }

    def request(self) -> LaunchRequest:
        """Build the request of the choices, for our own documents with the arguments as they are written there, so that
        a spec launches the very same spec: choices write some of TRL's defaults down, and leave others out."""
        request = replace(self.checked.request, kind=self.kind)
        if not self.complete:
            return request
        assumed = {argument.name: left_to_trl(argument, self.schema) for argument in ARGUMENTS}
        defaults = {**TRL_DEFAULTS, **assumed, **((self.schema or {}).get("defaults") or {})}
        chosen = {
            name: value for name, value in request.grpo.items() if name in self.grpo or defaults.get(name) != value
        }
        same = {
            name: value
            for name, value in self.grpo.items()
            if (chosen[name] == value if name in chosen else name in defaults and defaults[name] == value)
        }
        return replace(request, grpo={**same, **{name: value for name, value in chosen.items() if name not in same}})

    @property
    def refusing(self) -> list[Note]:
        """Notes because of which it would be another run than the document describes."""
        hard = {KeyVerdict.WRONG, KeyVerdict.CONTRADICTION, KeyVerdict.UNKNOWN}
        hard |= {KeyVerdict.LEFT_OUT} if self.complete else set()
        return [note for note in self.notes if note.verdict in hard]


def read(document: RunDocument, user: User) -> CheckedDocument:
    """Read and check a document. Raises Problem if it can't be read at all."""
    host = Host.objects.filter(name=document.host).first() if document.host and "\0" not in document.host else None
    if host is None and document.host:
        fix = "GET /api/v1/hosts lists them."
        raise Problem(422, f"There is no host {document.host}.", where="host", fix=fix)
    schema = schema_of(host)
    fields = launch_fields(schema, {})
    if unknown := set(document.set) - set(fields):
        raise Problem(422, f"The New run page has no field {min(unknown)[:80]}.", where="set")
    values: dict[str, Any] = {name: field.initial for name, field in fields.items() if field.initial is not None}
    content = json.dumps(document.spec) if document.spec is not None else document.document
    notes, complete, grpo = list[Note](), False, dict[str, Any]()
    if content:
        with refusing(UnreadableDocument, where="document", status=422, fix="Send a run's spec, or a config."):
            imported = importing.read(content.encode(errors="replace"), values, schema)
        complete, grpo = imported.reading.complete, imported.reading.below("grpo")
        notes = [note for note in imported.reading.notes if note.key not in ATTEMPT_KEYS]
        values |= imported.values
    chosen = {name: value for name, value in document.set.items() if value is not None}
    values |= chosen | {"host": host and host.pk, "priority": PRIORITIES[document.priority].value}
    values |= {"name": document.name} if document.name else {}
    # A note about a value that `set` replaces says nothing about the run.
    notes = [note for note in notes if field_of(note.path) not in chosen and note.path not in chosen]
    choices = choices_of(values, schema)
    kind = KINDS.get(document.kind or str((document.spec or {}).get("kind")), "train")
    checks = several.check(choices, user, kind)
    return CheckedDocument(choices, checks.checked, checks.findings, checks.parts, kind, notes, complete, grpo, schema)


def launch(document: RunDocument, user: User, idempotency_key: str) -> tuple[Run, bool, CheckedDocument]:
    """Launch a run. Return it, True if this call launched it, and its checked document. Raises Problem."""
    draft = read(document, user)
    if draft.parts:
        fix = "Leave seeds and grid out, or POST /api/v1/run-groups."
        raise Problem(422, "These settings make several runs.", where="set", fix=fix)
    request = draft.request()
    key = key_of_api(user, idempotency_key)
    # After preflight, which may have seen a queue that the first request has just filled.
    earlier = Run.every.filter(launch_key=key).first() if key else None
    if earlier is None:
        _refuse(draft, accept_notes=document.accept_notes)
    with room_in_queue(), refusing(ContractError, where="spec", status=422, text="This can't be launched: {}."):
        run, fresh = (earlier, False) if earlier else launch_once(request, user, key)
        if not fresh and freeze(request, run.pk) != spec_of(run):
            raise key_of_another("run")
    return run, fresh, draft


def launch_several(document: RunDocument, user: User, idempotency_key: str) -> tuple[RunGroup, bool]:
    """Launch the runs that `seeds` and `grid` make, all or none. False: an earlier call launched them. Raises
    Problem."""
    draft = read(document, user)
    key = key_of_api(user, idempotency_key)
    earlier = RunGroup.objects.filter(launch_key=key).first() if key else None
    if earlier is not None:
        return earlier, False
    _refuse(draft, accept_notes=document.accept_notes)
    if not draft.parts:
        raise Problem(422, "These settings make a single run.", where="set", fix="Set seeds or grid, or launch a run.")
    text = "These runs can't be launched: {}."
    with room_in_queue(), refusing(ContractError, where="spec", status=422, text=text):
        return several.launch(draft.parts, user, at_once=draft.choices.chosen("at_once"), key=key)


def room_in_queue() -> AbstractContextManager[None]:
    """Answer QueueFull with a Problem."""
    return refusing(QueueFull, where="queue", fix="Wait until a run of yours has ended, or stop one.")


def key_of_another(kind: str) -> Problem:
    fix = f"Send a new key for another {kind}."
    return Problem(409, f"This key has launched another {kind}.", where="Idempotency-Key", fix=fix)


def stop_at(findings: list[Finding], choices: LaunchChoices, extra: Mapping[str, Any] | None = None) -> None:
    """Raise Problem with the first reason that stops the launch."""
    stop = next((finding for finding in findings if finding.grade == Grade.STOP), None)
    if stop is not None:
        raise Problem(422, stop.cause, where=stop.field, fix=stop.fix, extra=extra)
    if not choices.is_valid():
        field, errors = next(iter(choices.errors.items()))
        raise Problem(422, " ".join(map(str, errors)), where=field, fix=f"Send it in `set`: {field}.", extra=extra)


def _refuse(draft: CheckedDocument, *, accept_notes: bool) -> None:
    extra = draft.answer()
    if draft.refusing and not accept_notes:
        note = draft.refusing[0]
        fix = "Change the document, choose it in `set`, or send accept_notes."
        raise Problem(422, note.text, where=note.key or "document", fix=fix, extra=extra)
    stop_at(draft.findings, draft.choices, extra)
