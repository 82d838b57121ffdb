"""Runs in every state, with everything that can happen to them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import cycle
from typing import Any

from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from runs.engine import checkpoints, sentences
from runs.engine.artifacts.models import StoredCopy
from runs.engine.jobs import archives, model_jobs
from runs.engine.jobs.starting import start
from runs.engine.machines.models import Expectation
from runs.engine.models import Attempt, Lease, ProfileTrial, Run, RunGroup
from runs.engine.records import LogChunk, RunEvent
from runs.engine.scheduling import dispatching, launching
from runs.engine.served.models import Answer, Turn
from runs.engine.states import ACTIVE, RunStatus, Waits, final_status
from runs.engine.transitions import move
from runs.insight.health import tick
from runs.insight.metrics import folding
from runs.intake.host_api import ingest, uploads
from tests.browser import completions_data, episodes_data
from tests.everything import findings
from tests.runs.builders import FREE, ONE_GPU, a_host, a_run, a_user, an_attempt, ended, event, train
from tests.runs.insight.health.lives import Life
from tests.runs.insight.health.test_sick_lives import EPISODES, _episodes
from tests.runs.pages.served.builders import a_turn, piece
from workers.contract.reports.chat import Finish
from workers.contract.reports.lines import OutboxLine
from workers.contract.run.evaluation import EVALUATION
from workers.contract.run.jobs import BENCHMARK, GGUF, MERGE, PUSH, WARM
from workers.contract.run.learnability import CHECK
from workers.contract.run.sinks import TITLES as SINKS
from workers.contract.run.sinks import SinkSpec
from workers.contract.run.spec import LoraSpec
from workers.contract.wire.names import EndReason, EventKind, Phase
from workers.diagnosis import catalogue

TOLD: dict[str, Any] = {
    **{"to": "failed", "reason": EndReason.OOM, "from": 2, "was": 0, "priority": 1, "mode": "save", "step": 3},
    **{"path": "checkpoints/checkpoint-9", "until": "2026-12-01T00:00:00", "resumes_at": "2026-12-01T00:00:00"},
    **{"text": "It says so.", "names": "loss", "stage": "loading the model", "max_steps": 20, "role": "vllm-2"},
    **{"pid": 7, "exit_code": None, "signal": None, "reward": "format", "row": None, "count": 10, "of": 100},
    **{"message": "It raised an error.", "attempt": 2},
}
"""What events may hold, each what it needs of it."""
GPU = {"gpu": "0", "before_mib": 3, "peak_mib": 70_000, "after_mib": 900, "seconds_to_free": None}


def a_trained_run(host: Host) -> Run:
    """Killed with its host, resumed, stopped, resumed, and trained to its end; with checkpoints and notes."""
    profile = {**ONE_GPU, "rollout": "server", "server": {"gpus": 1}}
    sinks = tuple(SinkSpec(kind, secret="SECRET_ENDPOINT" if kind == "mlflow" else "") for kind in SINKS)
    chosen = {"lora": LoraSpec(r=4), "sinks": sinks, "eval_rows": 8}
    run = a_run("trained", host=host, hardware=profile, **chosen)
    life, ends = Life(), (EndReason.HOST_LOST, EndReason.STOPPED_BY_USER, EndReason.COMPLETED)
    for number, reason in enumerate(ends, 1):
        attempt = started(run, number, host)
        life.live(30)
        lines = [train(0, step, **values) for step, _, values in life.rows[30 * number - 30 : 30 * number] if step]
        saved = {"step": 30 * number, "path": f"checkpoints/checkpoint-{30 * number}", "bytes": 2**30}
        tell(attempt, *lines, line("checkpoint", **saved, kept=[30 * number], versions={"trl": "1.16.0"}))
        for name in ("supervisor", "trainer", "vllm", "stacks"):
            LogChunk.objects.create(
                attempt=attempt, name=name, offset=0, data=b"Step 1\n<b>loss</b> \xff is nan\n" * 20
            )
        if number == 1:
            spans = [["trainer", "generation", 0.0, 1.0], ["rewards", "rewards", 1.0, 0.5]]
            tell(attempt, replace(line("spans", began=1000.0, seconds=2.0, spans=spans), step=1))
            completions_data.fill(attempt, steps=6, groups=2, size=4, rows=4)
        StoredCopy.objects.create(attempt=attempt, path=f"checkpoint-{30 * number}", problem="Too slow.", wanted=False)
        lease = Lease.objects.create(attempt=attempt, host=host, resource=f"gpu:{number % 2}", state=Lease.RELEASED)
        assert lease.pk
        finish(attempt, reason, detail="It says why." if number < len(ends) else "")
        if number < len(ends):
            launching.resume(Run.objects.get(pk=run.pk), a_user())
    folding.fold(run.pk, at_least=1)
    Run.objects.filter(pk=run.pk).update(tags=["baseline", "best"], notes="**Good** [page](https://example.org)")
    return Run.objects.get(pk=run.pk)


def an_episodes_run() -> Run:
    attempt = episodes_data.a_run("episodes")
    episodes_data.fill(attempt, steps=6)
    return attempt.run


def jobs(run: Run) -> None:
    """Every kind of job on the run's last model: ended well, failed, and in progress; and a chat with it."""
    checkpoint, user = checkpoints.of_run(run)[0], a_user()
    results = [{"task": "gsm8k", "metric": "exact_match", "value": 0.5, "stderr": 0.01, "n": 100}]
    found: dict[str, dict[str, Any]] = {
        MERGE: {},
        GGUF: {"folder": "/runs/r/1/gguf", "name": "m.gguf", "size": 2**30, "sha256": "0" * 64},
        PUSH: {"url": "https://hub.example/org/m", "commit": "0" * 40},
        BENCHMARK: {"results": results, "missing": {"mmlu": "It could not be fetched."}},
    }
    model_settings: dict[str, Any] = {
        GGUF: model_jobs.GgufSettings("m", "f16"),
        PUSH: model_jobs.PushSettings("org/m", "", "org/base"),
        BENCHMARK: model_jobs.BenchmarkSettings(("gsm8k", "own_task"), 100),
        MERGE: model_jobs.MergeSettings(),
    }
    for kind, facts in found.items():
        for reason in (EndReason.COMPLETED, EndReason.TRAINER_EXITED, None):
            attempt = started(start(checkpoint, kind, user, settings=model_settings[kind]), 1)
            saved = {"step": 90, "path": "checkpoints/merged", "bytes": 2**30, "kept": [90]}
            more = [line("checkpoint", **saved)] if kind == MERGE and reason == EndReason.COMPLETED else []
            tell(attempt, *more, line("result", text="It is ready.", facts=facts))
            if reason:
                finish(attempt, reason)
    download = archives.start(checkpoint, user, card="# A card")
    archives.store(download, 0, b"tar", total_bytes=3)
    finish(started(download, 1), EndReason.COMPLETED)
    turn = a_turn(checkpoint.event)
    tell(started(turn.run, 1), piece(0, turn.number, "It is"))
    for number, end in enumerate(Finish, 2):
        asked = {"prompt": [{"role": "user", "content": "And <b>4</b>?"}], "sampling": turn.sampling, "parent": turn}
        later = Turn.objects.create(run=turn.run, number=number, by=user, **asked)
        for model in ("trained", "base"):
            words = {"text": "It is 5.", "error": "It broke." if end == Finish.ERROR else ""}
            Answer.objects.create(turn=later, model=model, finish=end, tokens=3, seconds=0.5, **words)


def unhealthy_runs() -> None:
    """Findings of every health rule, with the alerts that they raise."""
    for kind in findings.KINDS:
        attempt = started(a_run(f"unhealthy, {kind}"), 1)
        life = Life(config=EPISODES, change=_episodes).live(20)
        tell(attempt, *(train(0, step, **values) for step, _, values in life.rows if step))
        run, now = Run.objects.get(pk=attempt.run_id), timezone.now()
        assert tick._store(run, attempt, findings.health(kind, now), now, with_events=True)
    for shape in ({}, {"verdict": "unknown", "step": 0, "findings": [], "checks": [], "at": None}):
        Run.objects.filter(pk=started(a_run("hardly assessed"), 1).run_id).update(health=shape)


def failed_runs() -> None:
    """A run for each end reason; the failed ones with a diagnosis of several of the catalogue's causes."""
    causes = list(catalogue.entries())
    failing = [reason for reason in EndReason if final_status(reason) == RunStatus.FAILED]
    shares = cycle([causes[place :: len(failing)] for place in range(len(failing))])
    for reason in EndReason:
        attempt = started(a_run(f"ended: {reason}"), 1)
        if reason in failing:
            tell(attempt, line("diagnosed", **diagnosis(next(shares)), first_errors=[["trainer", 3, "Error: <b>"]]))
        finish(attempt, reason, detail="torch.OutOfMemoryError: tried to allocate 2 GiB")
    tell_nothing = started(a_run("ended: unknown cause"), 1)
    tell(tell_nothing, line("diagnosed", diagnoses=[{"id": "of a newer version"}], first_errors=[]))
    finish(tell_nothing, EndReason.TRAINER_EXITED)


def diagnosis(causes: list[str]) -> dict[str, Any]:
    found = [catalogue.entries()[cause] for cause in causes]
    rows = []
    for entry, with_values in zip(found, cycle((True, False)), strict=False):
        groups = {name for pattern in entry.patterns for name in pattern.groupindex} if with_values else ()
        lines = [["trainer", 12, "RuntimeError: it broke"]]
        rows.append(
            {"id": entry.id, "confidence": entry.confidence, "values": dict.fromkeys(groups, "7"), "lines": lines}
            | {"facts": ["GPU 0 had 100 MiB left."]}
        )
    return {"diagnoses": rows}


def live_runs(hosts: dict[str, Host]) -> None:
    """Runs in every state before their end: in each phase, waiting for each thing, silent, in quarantine."""
    blocker = started(a_run("running", hardware=ONE_GPU), 1, hosts["box"])
    Attempt.objects.filter(pk=blocker.pk).update(resume_step=3, stop_mode="save", stop_requested_by=a_user())
    Lease.objects.create(attempt=blocker, host=hosts["box"], resource="gpu:0", state=Lease.HELD)
    for how in Waits:
        attempt = an_attempt(RunStatus.QUEUED, run=a_run(f"waits, {how}"))
        Attempt.objects.filter(pk=attempt.pk).update(waits_for="GPU 0 of box", waits_how=how, waits_on=blocker.run)
        Expectation.objects.create(attempt=attempt, text="A machine is expected in 5 min.")
    for phase in Phase:
        attempt = an_attempt(RunStatus.STARTING, run=a_run(f"phase, {phase}"))
        tell(attempt, line("phase", phase=phase, detail="host_lost at once", reason=EndReason.HOST_LOST))
        Attempt.objects.filter(pk=attempt.pk).update(host=hosts["silent"], last_seen_at=timezone.now() - timedelta(1))
    stopping = started(a_run("stopping"), 1, hosts["silent"])
    move(stopping, RunStatus.STOPPING, reason=EndReason.STOPPED_BY_USER, actor="olga")
    stuck = started(a_run("not proved free", hardware=ONE_GPU), 1, hosts["box"])
    finish(stuck, EndReason.OOM, free=False, survivors=[4242], gpus=[GPU])
    Lease.objects.create(attempt=stuck, host=hosts["box"], resource="gpu:1", state=Lease.QUARANTINED)
    again = started(a_run("resumes by itself"), 1)
    finish(again, EndReason.PREEMPTED)
    Attempt.objects.filter(pk=again.pk).update(resumes_at=timezone.now() + timedelta(minutes=5))
    a_host("warm", gpus=2)
    server = {"gpus": 1, "weight_sync": "lora", "keep_warm_minutes": 15}
    warm = {"rollout": "server", "trainer_gpus": 1, "server": server}
    a_run("with a warm server", host=Host.objects.get(name="warm"), hardware=warm, lora=LoraSpec(r=16))
    dispatching.dispatch_ready()
    assert Run.objects.filter(kind=WARM).exists()


def studies(trained: Run, host: Host) -> None:
    """A group, a trial, a check of what can be learned, evaluations, a clone, and a run without its catalogue rows."""
    group = RunGroup.objects.create(owner=a_user(), at_once=1)
    trial = ProfileTrial.objects.create(
        owner=a_user(),
        host=host,
        model="/models/tiny",
        refused=[{"profile": 1, "name": "big", "why": "No.", "fits": None}],
    )
    grpo = {"max_steps": 20, "num_generations_eval": 2, "temperature": 1.0}
    evaluation = {"eval_rows": 8, "source": trained, "kind": EVALUATION, "grpo": grpo}
    saved = checkpoints.of_run(trained)[0].folder
    made = {
        "seed 1": {"group": group},
        "seed 2": {"group": group},
        "small · trial": {"trial": trial, "kind": "trial"},
        "check": {"kind": CHECK, "eval_rows": 8},
        "base · evaluation": evaluation,
        "last · evaluation": {**evaluation, "start_from": saved},
        "clone": {"cloned_from": trained},
        "of deleted things": {},
    }
    for name, chosen in made.items():
        for reason in (EndReason.COMPLETED, None):
            attempt = started(a_run(name, host=host, **chosen), 1, host)
            tell(attempt, train(0, 1, reward=0.5, step_time=2.0), train(0, 2, reward=0.6, step_time=2.0))
            groups = [{"step": 0, "row": row, "prompt": "p", "mode": "eval", "completions": _two()} for row in range(3)]
            uploads.samples(attempt, 1, [{**each, "mode": "train", "step": 1} for each in groups] + groups)
            if reason:
                finish(attempt, reason)
    gone = Run.objects.filter(name="of deleted things")
    gone.update(profile=None, reward_version=None, environment_version=None, host=None)
    unreadable = a_run("of a newer version")
    Run.objects.filter(pk=unreadable.pk).update(spec={**unreadable.spec, "surprise": 1})


def _two() -> list[dict[str, Any]]:
    return [{"text": "a", "tokens": 3, "rewards": {"format": r}, "reward": r, "end": "eos"} for r in (0.0, 1.0)]


def odd_events(run: Run) -> None:
    """An event of each kind that the timeline knows, with little in it, and one that it doesn't know."""
    attempt = run.latest()
    for kind in (*sentences._EVENTS, *EventKind, "of_a_newer_version"):
        if kind not in ("checkpoint", "alert", "diagnosed", "result", "answer"):
            RunEvent.objects.create(run=run, attempt=attempt, at=timezone.now(), kind=kind, actor="olga", data=TOLD)


def started(run: Run, number: int, host: Host | None = None) -> Attempt:
    attempt = an_attempt(RunStatus.RUNNING, number=number, run=run)
    now = timezone.now()
    facts: dict[str, Any] = {"started_at": now, "claimed_at": now, "last_seen_at": now, "host": host or run.host}
    if facts["host"]:
        facts["placement"] = {"host": facts["host"].name, "gpus": [0], "cpu_slots": []}
    Attempt.objects.filter(pk=attempt.pk).update(**facts, first_seq=run.last_seq + 1, last_seq=run.last_seq)
    attempt.refresh_from_db()
    return attempt


def line(kind: str, **data: Any) -> OutboxLine:
    return event(0, kind, **data)


def tell(attempt: Attempt, *lines: OutboxLine) -> None:
    """Lines as its supervisor sends them, numbered in their order."""
    attempt.refresh_from_db()
    numbered = [
        OutboxLine(attempt.last_seq + n, line.t, line.kind, line.step, line.data) for n, line in enumerate(lines, 1)
    ]
    ingest.accept(attempt, numbered)


def finish(attempt: Attempt, reason: EndReason, detail: str = "", **receipt: Any) -> None:
    attempt.refresh_from_db()
    if attempt.status in ACTIVE:
        tell(attempt, ended(0, reason, detail=detail, receipt={**FREE, **receipt}))
    attempt.refresh_from_db()
    assert attempt.reason == reason, (attempt.reason, reason)
