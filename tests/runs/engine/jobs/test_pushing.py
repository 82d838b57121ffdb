"""Pushing from a model's page: who may, what is refused before anything starts, and what the job is given."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import Secret
from runs.engine.jobs import model_jobs
from runs.engine.models import Attempt
from runs.engine.scheduling import stopping
from runs.intake.host_api.claiming import Claim, claim
from runs.intake.host_api.ingest import accept
from tests.controlplane.people import admin, operator
from tests.controlplane.platform.accounts.secret_rows import HUB_KEY, a_hub_token, asks_reward
from tests.runs.builders import a_user, an_attempt, ended, event, rewards_named
from tests.runs.engine.jobs.test_merging import trained
from tests.runs.pages.model_pages.test_model_pages import text
from workers.contract.run.jobs import PUSH
from workers.contract.run.spec import ModelSpec
from workers.contract.wire.names import SCHEMA, StopMode

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]
FORM = {"repository": "Org/Model", "private": "on", "card": "# Ours\r\n"}


def pushed(page: str, **changes: Any) -> Any:
    return admin().post(f"{page}push", {**FORM, **changes})


def test_an_admin_pushes_with_the_card_as_edited() -> None:
    a_hub_token()
    run, page = trained()
    assert "# sums, step 1" in text(admin(), f"{page}push")
    for _ in range(2):
        assert pushed(page).status_code == 302
    job = run.jobs.get()
    sent = {"repository": "Org/Model", "card": "# Ours\n", "base": "tiny", "private": True, "add": False}
    assert (job.kind, job.spec["job"]) == (PUSH, sent)
    assert "wait until it ends" in pushed(page, repository="Org/Other").content.decode()


def test_operators_push_nothing() -> None:
    a_hub_token()
    run, page = trained()
    assert operator().post(f"{page}push", FORM).status_code == 403
    assert "Push to the hub" not in text(operator(), page)
    assert not run.jobs.exists()


def test_without_a_token_the_page_says_where_to_store_one() -> None:
    run, page = trained()
    shown = text(admin(), f"{page}push")
    assert "No token for the model hub is stored" in shown
    assert 'href="/settings/secrets/"' in shown
    assert pushed(page).status_code == 422
    assert not run.jobs.exists()


def test_a_name_that_the_hub_would_not_take_is_refused(subtests: pytest.Subtests) -> None:
    for name in [
        "Model",
        "a/b/c",
        "Org/",
        "Org/-x",
        "Org/a--b",
        "Org/a..b",
        "Org/x.git",
        "Org/" + "x" * 97,
        "Örg/x",
        "O/a b",
    ]:
        with subtests.test(name=name):
            assert model_jobs.repository_problem(name)


@pytest.mark.parametrize("name", ["Org/Model", "o/x", "my-org/Qwen2.5-0.5B_grpo", "o/" + "x" * 96])
def test_a_name_that_the_hub_takes_is_taken(name: str) -> None:
    assert model_jobs.repository_problem(name) == ""


def test_a_card_that_is_too_long_is_kept_and_refused() -> None:
    a_hub_token()
    run, page = trained()
    answer = pushed(page, card="ä" * 40_000)
    assert answer.status_code == 422
    assert "The card has 80,000 bytes" in answer.content.decode()
    assert "ä" * 40_000 in answer.content.decode()
    assert not run.jobs.exists()


def test_the_job_gets_the_token_and_no_other_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    token = a_hub_token()
    run, page = trained(
        model=ModelSpec("Org/Base"), reward_version=rewards_named("judged", asks_reward(monkeypatch, "GONE"))
    )
    pushed(page)
    attempt = an_attempt("starting", run=run.jobs.get())
    Attempt.objects.filter(pk=attempt.pk).update(host=Host.objects.get(), placement={"host": "gpu-1"})
    attempt.refresh_from_db()
    here = Claim(schema=SCHEMA, host="gpu-1", pid=7, boot_id="b")
    assert claim(attempt, here).secrets == {"HF_TOKEN": HUB_KEY}
    assert Secret.objects.get(pk=token.pk).used_by == attempt.run_id


def test_a_stop_lets_it_take_back_what_it_has_begun() -> None:
    a_hub_token()
    run, page = trained()
    pushed(page)
    attempt = an_attempt(run=run.jobs.get())
    assert "an existing one is not changed" in text(operator(), f"/runs/{attempt.run_id}/")
    stopping.request_stop(attempt, StopMode.SAVE, a_user())
    attempt.refresh_from_db()
    assert attempt.stop_mode == StopMode.SAVE
    assert "may remain on the hub, empty" in text(operator(), f"/runs/{attempt.run_id}/")


def test_the_models_page_shows_how_far_it_is_and_then_the_address() -> None:
    a_hub_token()
    run, page = trained()
    pushed(page)
    attempt = an_attempt(run=run.jobs.get())
    accept(attempt, [event(1, "training", max_steps=3000, step=0)])
    assert "0 of 3,000 MB" in text(operator(), page)
    url = "http://hub.example/Org/Model"
    accept(attempt, [event(2, "result", text=f"Pushed 3.0 GB to {url}.", facts={"url": url}), ended(3)])
    assert f'<a href="{url}" rel="noopener">Open it on the hub</a>' in text(operator(), page)
