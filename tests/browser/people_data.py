"""Inside a stack's Django: one of everything that pages show, and the addresses of those pages."""

from __future__ import annotations

import random
import time
from datetime import timedelta
from typing import Any

from django.utils import timezone

from controlplane.catalogue.datasets import actions
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.hardware.models import HardwareProfile, Host
from controlplane.catalogue.rewards import saving
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.platform.accounts.models import Secret, User
from runs.engine import tags
from runs.engine.alerts.models import AlertDelivery, AlertTarget
from runs.engine.models import Attempt, HealthPreset, ProfileTrial, Run
from runs.engine.scheduling import launching, stopping
from runs.engine.spec import LaunchRequest
from runs.engine.states import RunStatus
from runs.insight.health.presets import Presets
from runs.insight.health.tick import look_at
from runs.intake.host_api import uploads
from runs.intake.host_api.ingest import accept
from runs.pages.run_page import notes
from tests.browser import completions_data
from tests.controlplane.catalogue.datasets.sources import jsonl
from tests.controlplane.catalogue.datasets.steps import MAPPING, uploaded, worked
from tests.controlplane.platform.accounts.secret_rows import an_endpoint
from tests.runs import builders
from tests.runs.engine.alerts.builders import a_target
from tests.runs.insight.health.lives import Life
from workers.contract.reports.lines import OutboxLine
from workers.contract.wire.names import StopMode

TOO_LARGE = {"rollout": "colocate", "trainer_gpus": 8}
"""More GPUs than the stack's host has, so nothing is started: what supervisors would tell is told here."""
PARTS = [
    {"name": "accuracy", "function": "numeric_match", "weight": 1.0},
    {"name": "format", "function": "think_tags", "weight": 0.25},
]
TABS = ("charts", "completions", "completions&s.view=prompts", "logs", "events", "checkpoints", "spec")
LOG = b"loading the model\n" + b"step 12: reward 0.41\n" * 200 + b"torch.OutOfMemoryError: CUDA out of memory.\n"


def settled(version: DatasetVersion, status: str) -> DatasetVersion:
    """The stack's own worker may be at it, or at another."""
    end = time.monotonic() + 60
    while worked(version).status != status and time.monotonic() < end:
        time.sleep(0.05)
    return version


def datasets(rows: list[dict[str, Any]]) -> dict[str, DatasetVersion]:
    """One that is ready, one that waits for its mapping, one with problems to decide about."""
    ready = settled(uploaded(jsonl(rows), name="gsm8k"), "needs_mapping")
    actions.request_import(ready, MAPPING, share=0.1)
    broken = jsonl(rows[:40]) + b'{"question": "cut off\n[1]\n' + b'{"question": 7}\n'
    return {
        "ready": settled(ready, "ready"),
        "mapped": settled(uploaded(jsonl(rows), name="gsm8k to be mapped"), "needs_mapping"),
        "broken": worked(uploaded(broken, name="gsm8k with mistakes")),
    }


def a_run(name: str, version: DatasetVersion, rewards: RewardVersion, **more: Any) -> Run:
    profile, _ = HardwareProfile.objects.get_or_create(name="8 GPUs", defaults={"spec": TOO_LARGE})
    return launching.submit(
        LaunchRequest(
            name=name,
            host=None,
            model="/models/Qwen2.5-1.5B-Instruct",
            dataset_version=version,
            reward_version=rewards,
            profile=profile,
            **{"grpo": {"max_steps": 400, "beta": 0.04, "num_generations": 8}, **more},
        ),
        user=builders.a_user("olga"),
    )


def begun(run: Run) -> Attempt:
    attempt = builders.an_attempt(RunStatus.STARTING, run=run)
    accept(attempt, [OutboxLine(1, time.time(), "training", None, {"max_steps": 400, "step": 0})])
    attempt.refresh_from_db()
    return attempt


def lived(attempt: Attempt, steps: int, **life: Any) -> None:
    """What a trainer and its host tell in so many steps, ten seconds each, up to now."""
    past = Life(**life).live(steps)
    began = time.time() - past.t + 1000
    told = [("train", *row) for row in past.rows] + [("system", *row) for row in past.system]
    lines = [
        OutboxLine(seq=seq, t=began + t - 1000, kind=kind, step=step, data={**values})
        for seq, (kind, step, t, values) in enumerate(sorted(told, key=lambda line: line[2]), attempt.last_seq + 1)
    ]
    accept(attempt, lines)
    attempt.refresh_from_db()


def judged(run: Run) -> None:
    run = Run.objects.get(pk=run.pk)
    look_at(run, Presets().of(run), timezone.now(), with_events=False)


def completions(attempt: Attempt, rows: list[dict[str, Any]], steps: int) -> None:
    draw = random.Random(1)
    names = [part["name"] for part in attempt.run.spec["rewards"]]
    for step in range(1, steps + 1):
        groups = [completions_data.group(draw, step, (step * 4 + i) % len(rows), names, 8) for i in range(4)]
        for group in groups:
            asked = rows[group["row"]]
            group |= {"prompt": asked["question"], "answer": asked["answer"].rpartition(" ")[2]}
            group["turns"] = [{"role": "user", "content": asked["question"]}]
        attempt.refresh_from_db()
        uploads.samples(attempt, attempt.samples_ack + 1, groups)


def live_run(rows: list[dict[str, Any]], version: DatasetVersion, rewards: RewardVersion) -> Run:
    run = a_run("gsm8k-think-β04", version, rewards)
    attempt = begun(run)
    lived(attempt, 180, change=lambda step, values: values.update(kl=0.02 if step < 120 else 0.4))
    completions(attempt, rows, 6)
    uploads.log(attempt, "trainer", 0, LOG)
    saved = {"step": 100, "path": "checkpoint-100", "bytes": 3_100_000_000}
    accept(attempt, [OutboxLine(attempt.last_seq + 1, time.time(), "checkpoint", None, saved)])
    tags.tag([run.pk], builders.a_user(), ["math", "baseline"])
    notes.write(Run.objects.get(pk=run.pk), "Does β = 0.04 hold the format?", notes.edition(""), builders.a_user())
    judged(run)
    return Run.objects.get(pk=run.pk)


def checkpoints(attempt: Attempt, *steps: int) -> None:
    """The newest two exist."""
    for number, step in enumerate(steps, 1):
        kept = list(steps[max(0, number - 2) : number])
        saved = {"step": step, "path": f"checkpoints/checkpoint-{step}", "bytes": 3_100_000_000, "kept": kept}
        accept(attempt, [OutboxLine(attempt.last_seq + number, time.time(), "checkpoint", step, saved)])


def failed_run(version: DatasetVersion, rewards: RewardVersion) -> Run:
    run = a_run("qwen1.5b-long", version, rewards)
    attempt = begun(run)
    lived(attempt, 87, seed=2)
    uploads.log(attempt, "trainer", 0, LOG)
    checkpoints(attempt, 20, 40, 60, 80)
    attempt.refresh_from_db()
    accept(attempt, [builders.ended(attempt.last_seq + 1, "oom", exit_codes={"trainer": 1}, detail="")])
    judged(run)
    return run


def everything(rows: list[dict[str, Any]]) -> dict[str, str]:
    """What a page is of -> its path; of pages that share their template, the one with more on it."""
    data = datasets(rows)
    rewards = saving.make("accuracy and format", PARTS)
    live = live_run(rows, data["ready"], rewards)
    failed = failed_run(data["ready"], rewards)
    a_run("code-r16", data["ready"], rewards)  # it waits in the queue
    ready, mapped, broken = (f"/datasets/{v.dataset_id}/{v.number}/" for v in data.values())
    config = f"/rewards/{rewards.config_id}/"
    preset = HealthPreset.objects.get(slug="mixed").pk
    target = a_target(wants=[])
    an_endpoint()
    trial = ProfileTrial.objects.create(owner=builders.a_user(), host=Host.objects.first(), model="/models/tiny")
    return {
        "runs": "/runs/",
        **{f"run {tab}": f"/runs/{live.pk}/?tab={tab}" for tab in TABS},
        "failed run": f"/runs/{failed.pk}/?tab=checkpoints",
        "comparison": f"/runs/compare/?runs={live.pk},{failed.pk}",
        "new run": f"/runs/{failed.pk}/clone/",
        "datasets": "/datasets/",
        "upload": "/datasets/upload/",
        "dataset": ready,
        "report": f"{ready}report/",
        "rows": f"{ready}rows/",
        "row": f"{ready}rows/1/",
        "mapping": mapped,
        "problems": broken,
        "rewards": "/rewards/",
        "library": "/rewards/library/",
        "new reward config": "/rewards/new/",
        "reward config": config,
        "reward versions": f"{config}versions/",
        "reward version": f"{config}v1/",
        "hardware": "/hardware/",
        "profile": f"/hardware/profiles/{HardwareProfile.objects.get(name='8 GPUs').pk}/",
        "new profile": "/hardware/profiles/new/",
        "new trial": "/hardware/trials/new/",
        "trial": f"/hardware/trials/{trial.pk}/",
        "events": "/events/",
        "settings": "/settings/",
        "health presets": "/settings/health/",
        "health preset": f"/settings/health/{preset}/",
        "secrets": "/settings/secrets/",
        "alerts": "/settings/alerts/",
        "alert target": f"/settings/alerts/{target.pk}/",
        "users": "/users/",
        "password": "/password/",
        "nothing": "/nothing/here",
    }


def forget() -> None:
    """What other tests of the installation expect not to be there."""
    for rows in (AlertDelivery, AlertTarget, Secret, ProfileTrial):
        rows.objects.all().delete()


# --- what comes in while somebody looks ---------------------------------------------------------------------------


def young_run() -> str:
    """It has begun to train, and nothing was assessed yet."""
    run = a_run("young", DatasetVersion.objects.get(dataset__name="gsm8k"), RewardVersion.objects.latest("pk"))
    lived(begun(run), 2)
    in_reach(run.pk)
    return str(run.pk)


def in_reach(run_id: str) -> None:
    """For as long as somebody may look at it, on however slow a machine."""
    Attempt.objects.filter(run_id=run_id).update(last_seen_at=timezone.now() + timedelta(hours=1))


def comes_in(run_id: str, what: str) -> None:
    """figures | a new metric | health | tags | notes | a notice"""
    run = Run.objects.get(pk=run_id)
    attempt = run.latest()
    assert attempt is not None
    match what:
        case "figures":
            lived(attempt, 42)
        case "a new metric":
            accept(attempt, [builders.train(attempt.last_seq + 1, 42, **{"tools/calls": 3.0})])
        case "health":
            judged(run)
        case "tags":
            tags.tag([run_id], builders.a_user(), ["math"])
        case "notes":
            notes.write(run, "Does it hold the format?", notes.edition(""), builders.a_user())
        case "a notice":
            stopping.request_stop(attempt, StopMode.SAVE, User.objects.get(username="admin"))
    in_reach(run_id)
