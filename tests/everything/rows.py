"""Rows of an installation that has everything: what people can make, and what can happen to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from unittest import mock

from django.conf import settings
from django.utils import timezone

from controlplane.catalogue.datasets.models import (
    Corpus,
    CorpusVersion,
    Dataset,
    DatasetVersion,
    StoredFolder,
    Tokenizer,
)
from controlplane.catalogue.hardware import host_commands
from controlplane.catalogue.hardware.models import HardwareProfile, Host, ModelInspection
from controlplane.catalogue.joining import codes
from controlplane.catalogue.references.models import ReferenceCheck, ReferenceFailure
from controlplane.catalogue.rewards import saving as rewards
from controlplane.catalogue.versioned.models import Item
from controlplane.platform.accounts import onetime
from controlplane.platform.accounts.models import FailedSignIn, Role, Secret, User
from controlplane.platform.activity.models import KINDS as ACT_KINDS
from controlplane.platform.activity.models import Act
from runs.engine.alerts import delivery
from runs.engine.alerts.models import AlertDelivery, State
from runs.engine.machines.models import KINDS as MACHINE_KINDS
from runs.engine.machines.models import MachineRequest, MachineSource
from runs.engine.models import HealthPreset, Run, RunDisk, SavedView
from runs.engine.sharing.models import SharedLink
from runs.engine.trash import deleting
from runs.engine.trash.kinds import KINDS as TRASH
from tests.controlplane.catalogue.environments.environments import an_environment
from tests.controlplane.people import make_user
from tests.controlplane.platform.accounts.secret_rows import an_endpoint
from tests.datasets import ready_version
from tests.everything import run_rows
from tests.host_tokens import host_token
from tests.runs.api.clients import Program
from tests.runs.builders import CPU, ONE_GPU, a_host, a_run, a_user
from tests.runs.engine.alerts.builders import a_target
from tests.runs.launch.new_run.launching_page import SCHEMA
from tests.runs.pages.sharing.builders import a_link
from workers.contract.wire.names import EndReason

NAMES = ("box", "silent", "draining", "bare", "checking", "removed", "never")
ROWS = [{"prompt": f"{n} + {n}", "answer": str(2 * n), "note": "easy"} for n in range(40)]


@dataclass(frozen=True)
class Known:
    """What the walk needs beyond the ids that are in the tables."""

    host_tokens: dict[str, str]
    shared: str
    """Token of a shared link."""


def fill(folder: Path) -> Known:
    """Make everything, with files in `folder`, which is the settings' DATA_DIR."""
    assert Path(settings.DATA_DIR) == folder
    with mock.patch.object(host_commands, "send"):
        people()
        hosts = machines()
        catalogue_rows(hosts["box"])
        trained = run_rows.a_trained_run(hosts["box"])
        for run in (trained, run_rows.an_episodes_run()):
            RunDisk.objects.create(run=run, host=hosts["box"], bytes=10**9, measured_at=timezone.now())
        run_rows.jobs(trained)
        token = links(trained)
        run_rows.unhealthy_runs()
        run_rows.failed_runs()
        run_rows.live_runs(hosts)
        run_rows.studies(trained, hosts["box"])
        run_rows.odd_events(trained)
        messages()
        deleted(trained)
    return Known({name: host_token(name) for name in ("box", "silent")}, token)


def people() -> None:
    """One of each role, one whose account is disabled, tokens, sign-ins, secrets, views, and acts of every kind."""
    for name, role in (("vera", Role.VIEWER), ("olga", Role.OPERATOR), ("ana", Role.ADMIN), ("gone", Role.OPERATOR)):
        user = make_user(role, name=name, password=None)
        SavedView.objects.create(owner=user, name="mine", query="status=failed&sort=-name")
        if role == Role.OPERATOR:
            Program("read", user=user).client.get("/api/v1/me")
    User.objects.filter(username="gone").update(is_active=False)
    onetime.make_link(a_user("vera"), "https://grpo.example")
    revoked, _ = Program(user=a_user()).token, FailedSignIn.objects.create(name="x", address="::1", at=timezone.now())
    type(revoked).objects.filter(pk=revoked.pk).update(revoked_at=timezone.now())
    for kind, _ in Secret.Kind.choices:
        an_endpoint(f"SECRET_{kind}".upper(), kind=kind, by=a_user("ana"))
    for kind in ACT_KINDS:
        for key in ("", "1", "99999999"):
            Act.objects.create(by=a_user(), by_name="olga", kind=kind, key=key, name=f"the {kind}", what="Changed it")
    Act.objects.create(by=None, by_name="", kind="session", what="Failed to sign in")


def machines() -> dict[str, Host]:
    """Hosts in every state, machines on demand in every state, and codes to join."""
    now, hosts = timezone.now(), {}
    for name in NAMES:
        hosts[name] = a_host(name, gpus=2, cpu_slots=2, trainer_schema=SCHEMA)
        hosts[name].inventory |= {"trainer": "ready", "models": ["/models/tiny"], "disk_free_mib": 100_000}
        hosts[name].save(update_fields=["inventory"])
    day = now - timedelta(days=1)
    Host.objects.filter(name="silent").update(announced_at=day)
    Host.objects.filter(name="draining").update(draining=True, gpu_hour_price=2.5, currency="€")
    Host.objects.filter(name="bare").update(trainer_schema=None, inventory={}, unsandboxed_allowed=True)
    Host.objects.filter(name="checking").update(inventory={"trainer": "checking", "gpu_error": "NVML: no driver"})
    Host.objects.filter(name="never").update(announced_at=None)
    Host.objects.filter(name="removed").update(removed_at=now)
    Host.objects.filter(name="box").update(history=[[now.timestamp() - 60, [None, 40]]], serve_address="10.0.0.1")
    for code, used in (("", None), ("box", now)):
        row, _ = codes.create(code, by=a_user())
        type(row).objects.filter(pk=row.pk).update(used_at=used, used_by=code)
    for kind in MACHINE_KINDS:
        source = MachineSource.objects.create(name=f"from {kind}", kind=kind, control_url="https://grpo.example")
        for state in MachineRequest.State.values:
            MachineRequest.objects.create(
                source=source, host_name=f"{kind}-{state}", state=state, sentence="It says so."
            )
    for answer in (None, {"ok": False, "error": "There is no such folder."}, {"ok": True, "parameters": 10**6}):
        answered = now if answer else None
        ModelInspection.objects.create(host=hosts["box"], model="/models/tiny", answer=answer, answered_at=answered)
    return hosts


def catalogue_rows(host: Host) -> None:
    """Datasets, corpora and references in every state, and versions of rewards and environments."""
    user = a_user()
    ready = ready_version("sums", ROWS, validation=8, created_by=user)
    StoredFolder.objects.create(name=f"datasets/{ready.pk}", problem="The store refused it.", next_at=timezone.now())
    for status in DatasetVersion.STATUSES:
        for kind, report in (("upload", {}), ("hub", {"file_error": _error(status)})):
            dataset, _ = Dataset.objects.get_or_create(name=f"{status} from {kind}", defaults={"owner": user})
            facts = {"status": status, "source_kind": kind, "report": report, "file_name": "rows.jsonl"}
            source = {"repository": "org/sums", "commit": "0" * 40, "files": ["a.parquet"]} if kind == "hub" else {}
            DatasetVersion.objects.create(dataset=dataset, number=1, parent=ready, source=source, **facts)
    Tokenizer.objects.create(sha256="1" * 64, model="/models/tiny")
    corpus = Corpus.objects.create(name="towns", owner=user)
    for number, status in enumerate(CorpusVersion.STATUSES, 1):
        report = {"file_error": _error("upload")} if status == CorpusVersion.INVALID else {"repeated": 1, "empty": 2}
        CorpusVersion.objects.create(corpus=corpus, number=number, status=status, source="towns.jsonl", report=report)
    version = rewards.make("tags", [{"name": "format", "function": "think_tags"}], owner=user)
    rewards.save(version.config, [{"name": "right", "function": "numeric_match", "weight": 2.0}], note="Counts more")
    an_environment("sums", owner=user)
    for status in ReferenceCheck.STATUSES:
        counts = {"format": {"scored": 30, "failed": 2, "total": 15.5}}
        facts = {"status": status, "done": 32, "failed_rows": 2, "counts": counts, "problem": "It was stopped."}
        check = ReferenceCheck.objects.create(dataset_version=ready, reward_version=version, created_by=user, **facts)
        for row, score in ((1, 0.0), (2, None)):
            words = {"component": "format", "message": "It raised an error.", "excerpt": "1 + 1"}
            ReferenceFailure.objects.create(check_of=check, row=row, score=score, **words)
    HardwareProfile.objects.create(name="altered", spec={"rollout": "a newer one"}, owner=user)
    HardwareProfile.objects.create(name="archived", spec=ONE_GPU, archived_at=timezone.now())
    for preset in HealthPreset.objects.filter(slug="mixed"):
        HealthPreset.objects.create(name="Strict", owner=user, bounds={"kl": {"on": False}}, source=preset.source)


def _error(kind: str) -> dict[str, str]:
    return {"kind": kind, "message": "The file ends in the middle of row 3.", "advice": "Upload it again."}


def links(run: Run) -> str:
    """Links that are open, have ended and are revoked, and people who follow the run; the open one's token."""
    _, token = a_link(run, with_completions=True)
    now = timezone.now()
    for column in ("expires_at", "revoked_at"):
        closed, _ = a_link(run)
        SharedLink.objects.filter(pk=closed.pk).update(**{column: now})
    for name in ("webhook", "https://hooks.example/services/T0/B0/x"), ("mail", "team@example.org"):
        a_target(name[1], name=name[0], by=a_user("ana"))
    a_target("olga@example.org", name="follower", run=run, by=a_user())
    a_target("off@example.org", name="off", enabled=False, by=a_user("gone"))
    return token


def messages() -> None:
    """Messages in every state, each for what it tells."""
    assert AlertDelivery.objects.exclude(event=None).exists()
    for number, state in zip(AlertDelivery.objects.values_list("pk", flat=True)[:90], cycle(State), strict=False):
        sent_at = timezone.now() if state == State.SENT else None
        AlertDelivery.objects.filter(pk=number).update(state=state, error="The server said 500.", sent_at=sent_at)
    for target in delivery.AlertTarget.objects.all():
        delivery.queue_test(target)


def deleted(trained: Run) -> None:
    """One of each thing that can be deleted and restored, and an archived run."""
    a_run("archived")
    Run.objects.filter(name="archived").update(archived_at=timezone.now())
    rewards.make("deleted", [{"name": "format", "function": "think_tags"}])
    an_environment("deleted")
    Dataset.objects.create(name="deleted")
    HardwareProfile.objects.create(name="deleted", spec=CPU)
    run_rows.finish(run_rows.started(a_run("deleted"), 1), EndReason.COMPLETED)
    for kind in TRASH.values():
        row = kind.model.objects.get(name="deleted")
        assert deleting.delete(kind, str(row.pk), a_user())
        assert isinstance(row, Item | Dataset | HardwareProfile | Run)
