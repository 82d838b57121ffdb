"""The checkpoints tab, and resumes from it."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client
from pytest_django import Settings

from controlplane.catalogue.hardware.models import Host
from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent
from runs.engine.states import RunStatus
from runs.intake.host_api.ingest import accept
from tests.controlplane.people import operator, viewer
from tests.runs.builders import FREE, a_host, a_run, an_attempt, event, train

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def quick_passwords(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def text(client: Client, path: str) -> str:
    return client.get(path).content.decode()


def test_resume_goes_on_from_the_last_checkpoint() -> None:
    attempt = an_attempt()
    Run.objects.filter(pk=attempt.run_id).update(max_steps=20)
    accept(attempt, [train(1), event(2, "checkpoint", step=1, path="checkpoints/checkpoint-1")])
    Attempt.objects.filter(pk=attempt.pk).update(status=RunStatus.STOPPED, reason="stopped_by_user")
    assert "continues from the checkpoint at step 1" in text(operator(), f"/runs/{attempt.run_id}/")
    Attempt.objects.filter(pk=attempt.pk).update(status=RunStatus.FAILED, reason="reward_failed")
    assert '<button class="button" title="A new attempt' in text(operator(), f"/runs/{attempt.run_id}/")
    operator().post(f"/runs/{attempt.run_id}/resume")
    assert Run.objects.get(pk=attempt.run_id).latest().resume_step == 1


def test_a_checkpoint_that_the_trainer_has_removed_since_is_told_from_those_that_are_there() -> None:
    attempt = an_attempt(run=a_run(grpo={"max_steps": 20, "save_total_limit": 2}))
    saves = [event(n, "checkpoint", step=n, path=f"checkpoints/checkpoint-{n}") for n in (1, 2, 3)]
    accept(attempt, saves)
    page = text(viewer(), f"/runs/{attempt.run_id}/checkpoints/")
    assert page.count(">deleted<") == 1
    assert page.index("Copy the folder of step 2") < page.index(">deleted<")
    assert "Copy the folder of step 1" not in page


def test_a_run_resumes_from_any_checkpoint_that_exists() -> None:
    attempt = an_attempt(run=a_run(grpo={"max_steps": 20, "save_total_limit": 2}))
    saves = [event(n, "checkpoint", step=n, path=f"checkpoints/checkpoint-{n}", kept=[1, n]) for n in (1, 2, 3)]
    accept(attempt, saves)
    Attempt.objects.filter(pk=attempt.pk).update(status=RunStatus.STOPPED, reason="stopped_by_user")
    page = text(operator(), f"/runs/{attempt.run_id}/checkpoints/")
    assert page.count('name="checkpoint"') == 2
    assert "Resume" not in text(viewer(), f"/runs/{attempt.run_id}/checkpoints/")
    first, removed = (RunEvent.objects.get(kind="checkpoint", seq=seq) for seq in (1, 2))
    gone = operator().post(f"/runs/{attempt.run_id}/resume", {"checkpoint": removed.pk}, follow=True)
    assert b"no longer exists" in gone.content
    operator().post(f"/runs/{attempt.run_id}/resume", {"checkpoint": first.pk})
    assert Run.objects.get(pk=attempt.run_id).latest().resume_step == 1


def test_a_checkpoint_is_shown_with_the_rewards_at_it_and_the_best_is_marked() -> None:
    attempt = an_attempt()
    rows = [train(n, step=n, reward=reward) for n, reward in ((1, 0.25), (2, 0.75), (3, 0.125))]
    saves = [event(3 + n, "checkpoint", step=n, path=f"checkpoints/checkpoint-{n}", kept=[1, 2, 3]) for n in (1, 2, 3)]
    accept(attempt, rows + saves)
    page = text(viewer(), f"/runs/{attempt.run_id}/checkpoints/")
    means = re.findall(r'data-label="Reward">(\S+)<', page)
    assert means == ["0.375", "0.500", "0.250"]
    assert page.count(">best<") == 1
    assert page.index("<strong>3<") < page.index("<strong>2<") < page.index(">best<") < page.index("<strong>1<")


def test_the_best_is_the_one_that_the_trainer_keeps() -> None:
    run = a_run(grpo={"max_steps": 20, "save_total_limit": 1}, keep_best="kl")
    attempt = an_attempt(run=run)
    rows = [train(n, step=n, reward=n / 10, kl=kl) for n, kl in ((1, 0.25), (2, 0.125), (3, 0.75))]
    kept = {1: [1], 2: [1, 2], 3: [2, 3]}
    saves = [event(3 + n, "checkpoint", step=n, path=f"checkpoints/checkpoint-{n}", kept=kept[n]) for n in kept]
    accept(attempt, rows + saves)
    page = text(viewer(), f"/runs/{attempt.run_id}/checkpoints/")
    assert page.count(">best<") == page.count(">deleted<") == 1
    assert page.index("<strong>2<") < page.index(">best<") < page.index("<strong>1<") < page.index(">deleted<")


def test_a_run_that_still_goes_is_not_resumed() -> None:
    attempt = an_attempt()
    page = operator().post(f"/runs/{attempt.run_id}/resume", follow=True)
    assert b"is still running" in page.content
    assert attempt.run.attempts.count() == 1


def test_a_checkpoint_of_all_weights_can_be_the_model_of_another_run() -> None:
    attempt, host = an_attempt(), a_host()
    Attempt.objects.filter(pk=attempt.pk).update(host=host)
    accept(attempt, [event(1, "checkpoint", step=1, path="checkpoints/checkpoint-1")])
    page = f"/runs/{attempt.run_id}/checkpoints/"
    assert "Train on" not in text(operator(), page), "the host has not said where its runs are"
    Host.objects.update(inventory={**host.inventory, "runs_dir": "/srv/my runs"})
    folder = f"/srv/my runs/{attempt.run_id}/1/checkpoints/checkpoint-1"
    assert f'data-copy="{folder}"' in text(viewer(), page)
    assert "Train on" not in text(viewer(), page)
    (link,) = re.findall(r'href="(/runs/new/[^"]*)"', text(operator(), page))
    form = text(operator(), html.unescape(link))
    assert f'value="{folder}"' in form
    assert f'<option value="{host.pk}" selected>' in form
    assert f'<option value="{attempt.run.dataset_version_id}" selected>' in form


def test_an_adapter_is_no_model() -> None:
    attempt, host = an_attempt(run=a_run(lora={"r": 8})), a_host()
    Attempt.objects.filter(pk=attempt.pk).update(host=host)
    accept(attempt, [event(1, "checkpoint", step=1, path="checkpoints/checkpoint-1")])
    Host.objects.update(inventory={**host.inventory, "runs_dir": "/srv/runs"})
    page = text(operator(), f"/runs/{attempt.run_id}/checkpoints/")
    assert "/srv/runs/" in page
    assert "Train on" not in page


def test_the_receipt_of_a_save_and_stop_says_which_step_was_saved() -> None:
    attempt = an_attempt()
    accept(attempt, [train(1), event(2, "checkpoint", step=1, path="checkpoints/checkpoint-1")])
    ended = {"status": RunStatus.STOPPED, "reason": "stopped_by_user", "receipt": {**FREE, "gpus": []}}
    Attempt.objects.filter(pk=attempt.pk).update(**ended)
    assert "Saved before the stop" not in text(viewer(), f"/runs/{attempt.run_id}/events/")
    Attempt.objects.filter(pk=attempt.pk).update(stop_mode="save")
    for page in (f"/runs/{attempt.run_id}/events/", f"/runs/{attempt.run_id}/"):
        receipt = text(viewer(), page)
        assert "<dt>Saved before the stop</dt><dd>step 1</dd>" in receipt
        assert "<dt>GPUs</dt><dd>the run held none</dd>" in receipt
