"""Runs that a program launches by a document (a spec or another tool's config) and settings that override it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal

from ninja import Field

from controlplane.catalogue.exchange.own import ATTEMPT_KEYS
from controlplane.catalogue.exchange.reading import KeyVerdict, Note, UnreadableDocument
from controlplane.catalogue.hardware import inspections
from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import User
from controlplane.platform.safe_yaml import short_value
from runs.api import shapes
from runs.api.access import Problem, refusing
from runs.api.shapes import RequestBody, Value
from runs.engine.idempotency import key_of_api, launch_once
from runs.engine.models import Priority, Run, RunGroup
from runs.engine.scheduling.limits import QueueFull
from runs.engine.spec import LaunchRequest, freeze, spec_of
from runs.launch import preflight
from runs.launch.new_run import importing, past_runs, several
from runs.launch.new_run.choices import REQUIRED_CHOICES, LaunchChoices, choices_of, launch_fields
from runs.launch.new_run.drafting import CheckedChoices, host_to_ask, refusals, schema_of
from runs.launch.new_run.fields.choice_fields import row_by_id
from runs.launch.new_run.fields.table import ARGUMENTS, BY_FIELD
from runs.launch.new_run.importing import ImportedConfig
from runs.launch.new_run.leads import Leads
from runs.launch.new_run.spec_values import field_of, trl_default
from runs.launch.preflight.finding import Finding, Grade, stop
from workers.contract.run.evaluation import EVALUATION
from workers.contract.run.jobs import KINDS as JOBS
from workers.contract.run.learnability import CHECK
from workers.contract.stack.training_rules import TRL_DEFAULTS
from workers.contract.wire.documents import ContractError

KINDS = {"train": "train", "check": CHECK}
KNOWN_KINDS = (*KINDS, "trial", EVALUATION, *JOBS)
"""Kinds of specs; those that aren't in KINDS are launched as training runs."""
NOTE_FIX = "Correct the document, give the value in `set`, or send accept_notes: true."
PRIORITIES = {"high": Priority.HIGH, "normal": Priority.NORMAL, "low": Priority.LOW}


class RunDocument(RequestBody):
    """A run to launch or to check: `spec` or `document`, and the settings that override it."""

    spec: dict[str, Any] | None = Field(None, description="A run's spec, as returned by /runs/{id}/spec.")
    document: str = Field(
        "",
        description="Instead of `spec`: the spec as YAML, an Axolotl, TRL or accelerate YAML, a command line or a "
        "script.",
    )
    set: dict[str, Value] = Field(
        {},
        description="Fields of the New run page, and other GRPOConfig arguments by their names in TRL. Catalogue "
        "entries are given by id.",
        json_schema_extra={"properties": {name: field.json_schema() for name, field in BY_FIELD.items()}},
    )
    name: str = Field("", max_length=120)
    host: str = Field("", max_length=64, description="A host's name. If empty, any host that fits.")
    priority: Literal["high", "normal", "low"] = "normal"
    kind: Literal["train", "check"] | None = Field(
        None,
        description="`check` only samples completions, to see what can be learned. If null, as in the spec, "
        "otherwise `train`.",
    )
    accept_notes: bool = Field(False, description="Launch even if parts of the document can't be used.")


@dataclass(frozen=True)
class CheckedDocument:
    """A run document with the settings read from it, its preflight, and notes on the parts that were changed."""

    choices: LaunchChoices
    checked: CheckedChoices
    findings: list[Finding]
    parts: list[several.PlannedRun]
    """The runs, if the settings describe more than one; otherwise empty."""
    kind: str
    notes: list[Note]
    complete: bool
    """True for a run's spec, which states every setting."""
    grpo: dict[str, Any]
    schema: dict[str, Any] | None
    leads: Leads

    def response_fields(self) -> dict[str, Any]:
        return {
            "launchable": not preflight.blocks(self.findings),
            "findings": [shapes.finding(finding) for finding in self.findings],
            "notes": [{"verdict": note.verdict.value, "key": note.key, "text": note.text} for note in self.notes],
            "leads": {
                "datasets": self.leads.datasets,
                "rewards": self.leads.rewards,
                "unknown_rewards": self.leads.unknown,
                "reward_config": self.leads.config,
            },
        }

    def request_inspection(self) -> bool:
        """Request an inspection of the model unless there is a recent one. Return whether one is pending."""
        about, host = self.checked.draft, host_to_ask(self.choices)
        if not about.model or about.inspection is not None or host is None:
            return False
        try:
            inspections.request_inspection(host, about.model, revision=str(self.choices.chosen("revision") or ""))
        except inspections.HostAway:
            return False
        return True

    def expected_time(self) -> dict[str, Any] | None:
        time = past_runs.expected_duration(self.checked.draft, self.checked.hosts)
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
        """Build the launch request. For a complete spec, write GRPOConfig arguments as it does, so that launching a
        spec again yields the same spec: the form states some of TRL's defaults and omits others."""
        request = replace(self.checked.request, kind=self.kind)
        if not self.complete:
            return request
        trl_defaults = {argument.name: trl_default(argument, self.schema) for argument in ARGUMENTS}
        defaults = {**TRL_DEFAULTS, **trl_defaults, **((self.schema or {}).get("defaults") or {})}
        explicit_arguments = {
            name: value for name, value in request.grpo.items() if name in self.grpo or defaults.get(name) != value
        }
        grpo = {
            name: value
            for name, value in self.grpo.items()
            if (
                explicit_arguments[name] == value
                if name in explicit_arguments
                else name in defaults and defaults[name] == value
            )
        }
        return replace(
            request, grpo={**grpo, **{name: value for name, value in explicit_arguments.items() if name not in grpo}}
        )

    def with_every_stop(self, user: User, *, accept_notes: bool) -> "CheckedDocument":
        """Return the document with a finding for whatever else would stop its launch: a part of it that isn't used, a
        missing choice, or a value that the spec can't hold."""
        of_notes = [] if accept_notes else list(self._of_notes())
        explained_paths = {note.path for note in self.notes} if of_notes else set[str]()
        findings = [
            *of_notes,
            *(finding for finding in self._missing() if finding.field not in explained_paths),
            *self.findings,
        ]
        if not preflight.blocks(findings) and not self.parts:
            findings = refusals(self.request(), user) + findings
        return replace(self, findings=findings)

    def _of_notes(self) -> Iterator[Finding]:
        """Yield a stop for each note with which the run would differ from what the document describes."""
        hard = {KeyVerdict.WRONG, KeyVerdict.CONTRADICTION, KeyVerdict.UNKNOWN}
        hard |= {KeyVerdict.LEFT_OUT} if self.complete else set()
        for note in self.notes:
            if note.verdict in hard:
                cause = f"This key is unknown. {note.text}" if note.verdict == KeyVerdict.UNKNOWN else note.text
                yield stop(note.key or "document", cause, NOTE_FIX)

    def _missing(self) -> Iterator[Finding]:
        for field, errors in self.choices.errors.as_data().items():
            for error in errors:
                if field in REQUIRED_CHOICES and error.code == "required":
                    yield stop(field, " ".join(error.messages), f"Send it in `set`: {field}.")


def read(document: RunDocument, user: User) -> CheckedDocument:
    """Check a document and return the result. Raises Problem if the document can't be read."""
    host = _host(document)
    schema = schema_of(host)
    fields = launch_fields(schema, {})
    if unknown_names := set(document.set) - set(fields):
        raise Problem(422, f"The New run page has no field {min(unknown_names)[:80]}.", where="set")
    values: dict[str, Any] = {name: field.initial for name, field in fields.items() if field.initial is not None}
    content = json.dumps(document.spec) if document.spec is not None else document.document
    notes, is_full, grpo, leads = list[Note](), False, dict[str, Any](), Leads()
    if content:
        with refusing(UnreadableDocument, where="document", status=422, fix="Send a run's spec or a config file."):
            imported = importing.read(content.encode(errors="replace"), values, schema)
        is_full, grpo = imported.reading.complete, imported.reading.below("grpo")
        leads = imported.leads
        notes = [note for note in imported.reading.notes if note.key not in ATTEMPT_KEYS]
        notes += _of_hardware(imported)
        values |= imported.values
    explicit_values = _explicit(document, host)
    values |= explicit_values
    # A note about a value that `set` replaces doesn't concern the run.
    notes = [note for note in notes if field_of(note.path) not in explicit_values and note.path not in explicit_values]
    choices = choices_of(values, schema)
    kind = document.kind or str((document.spec or {}).get("kind") or "train")
    if document.kind is None and kind not in KNOWN_KINDS:
        text = f"Expected one of {', '.join(KNOWN_KINDS)}, got {short_value(kind)}."
        notes.append(Note(KeyVerdict.WRONG, "kind", text))
    kind = KINDS.get(kind, "train")
    checks = several.check(choices, user, kind)
    draft = CheckedDocument(
        choices, checks.checked, checks.findings, checks.parts, kind, notes, is_full, grpo, schema, leads
    )
    return draft.with_every_stop(user, accept_notes=document.accept_notes)


def _host(document: RunDocument) -> Host | None:
    """Find the host that the document names or `set` chooses. Raises Problem if there is none of this name."""
    if not document.host:
        return row_by_id(Host, document.set.get("host"))
    host = Host.objects.filter(name=document.host).first() if "\0" not in document.host else None
    if host is None:
        fix = "GET /api/v1/hosts lists them."
        raise Problem(422, f"There is no host {document.host}.", where="host", fix=fix)
    return host


def _explicit(document: RunDocument, host: Host | None) -> dict[str, Any]:
    """Return the values by field that the request itself gives: those in `set`, unless the body has its own."""
    values = {name: value for name, value in document.set.items() if value is not None}
    own_settings: dict[str, Any] = {"name": document.name, "host": host.pk if document.host and host else None}
    if document.priority != "normal" or "priority" not in values:
        own_settings["priority"] = document.priority
    values |= {name: value for name, value in own_settings.items() if value not in (None, "")}
    return values | {"priority": PRIORITIES.get(str(values["priority"]), values["priority"])}


def _of_hardware(imported: ImportedConfig) -> Iterator[Note]:
    """Yield a note if no profile has the hardware settings of a complete document."""
    if imported.reading.complete and imported.hardware and imported.profile is None:
        settings = "; ".join(f"{label}: {value}" for label, value in imported.hardware)
        text = f"No hardware profile here has exactly these settings: {settings}. Choose or create one."
        yield Note(KeyVerdict.LEFT_OUT, "hardware", text, path="profile")


def launch(document: RunDocument, user: User, idempotency_key: str) -> tuple[Run, bool, CheckedDocument]:
    """Launch a run. Return the run, whether this call launched it, and the checked document. Raises Problem if the
    document can't be read or launched or describes several runs, or if the key was used for a different run."""
    draft = read(document, user)
    if draft.parts:
        fix = "Omit seeds and grid, or use POST /api/v1/run-groups."
        raise Problem(422, "These settings describe several runs.", where="set", fix=fix)
    request = draft.request()
    key = key_of_api(user, idempotency_key)
    # Looked up after preflight, which may have seen a queue that the first request has just filled.
    earlier_run = Run.every.filter(launch_key=key).first() if key else None
    if earlier_run is None:
        raise_if_stopped(draft.findings, draft.choices, draft.response_fields())
    with (
        refusing_full_queue(),
        refusing(ContractError, where="spec", status=422, message="This can't be launched: {}."),
    ):
        run, is_new = (earlier_run, False) if earlier_run else launch_once(request, user, key)
        if not is_new and freeze(request, run.pk) != spec_of(run):
            raise key_conflict("run")
    return run, is_new, draft


def launch_several(document: RunDocument, user: User, idempotency_key: str) -> tuple[RunGroup, bool]:
    """Launch all runs that `seeds` and `grid` describe, or none. Return their group and whether this call launched it.
    Raises Problem if the document can't be read or launched, or describes a single run."""
    draft = read(document, user)
    key = key_of_api(user, idempotency_key)
    earlier_group = RunGroup.objects.filter(launch_key=key).first() if key else None
    if earlier_group is not None:
        return earlier_group, False
    raise_if_stopped(draft.findings, draft.choices, draft.response_fields())
    if not draft.parts:
        fix = "Set seeds or grid, or use POST /api/v1/runs."
        raise Problem(422, "These settings describe a single run.", where="set", fix=fix)
    text = "These runs can't be launched: {}."
    with refusing_full_queue(), refusing(ContractError, where="spec", status=422, message=text):
        return several.launch(draft.parts, user, at_once=draft.choices.chosen("at_once"), key=key)


def refusing_full_queue() -> AbstractContextManager[None]:
    """Return a context that raises a Problem for QueueFull."""
    return refusing(QueueFull, where="queue", fix="Wait until one of your runs has ended, or stop one.")


def key_conflict(kind: str) -> Problem:
    """Return the Problem for an Idempotency-Key that was used for something else."""
    what = f"This Idempotency-Key was already used for a different {kind}."
    return Problem(409, what, where="Idempotency-Key", fix="Send a new key.")


def raise_if_stopped(findings: list[Finding], choices: LaunchChoices, extra: Mapping[str, Any] | None = None) -> None:
    """Raise a Problem for the first finding or form error that stops the launch, if any."""
    stop = next((finding for finding in findings if finding.grade == Grade.STOP), None)
    if stop is not None:
        raise Problem(422, stop.cause, where=stop.field, fix=stop.fix, extra=extra)
    if not choices.is_valid():
        field, errors = next(iter(choices.errors.items()))
        raise Problem(422, " ".join(map(str, errors)), where=field, fix=f"Send it in `set`: {field}.", extra=extra)
