"""Rewards beside generation: on the New run page, in the spec and its clone, in preflight."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from django.test import Client

from runs.engine.models import Run
from runs.engine.spec import spec_of
from runs.launch.new_run.forms import LaunchForm
from runs.launch.new_run.prefill import as_sent
from runs.launch.preflight.checks import overlapping
from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Grade
from tests.controlplane.people import operator
from tests.runs.launch.new_run.launching_page import SCHEMA, a_ready_host, sent
from workers.contract.run.episodes import EpisodeSpec, GatewaySpec
from workers.contract.run.hardware import HardwareSpec, Rollout, ServerSpec
from workers.contract.run.spec import RewardSpec

SERVED = HardwareSpec(profile="p", trainer_gpus=1, rollout=Rollout.SERVER, server=ServerSpec())
ALONE = HardwareSpec(profile="p", cpu_slots=1)
JUDGED, PURE = RewardSpec("judged", "judge"), RewardSpec("format", "think_tags")


@pytest.mark.django_db
def test_the_choice_is_kept_by_the_form_and_the_clone() -> None:
    a_ready_host()
    client: Client = operator()
    answer = client.post("/runs/new/", sent(rewards_beside="on"))
    # The page's profile generates by transformers, where it can't be had.
    assert answer.status_code == 422
    assert "generates each batch as a whole, by transformers" in answer.content.decode()
    client.post("/runs/new/", sent())
    run = Run.objects.get()
    assert not spec_of(run).rewards_beside
    Run.objects.filter(pk=run.pk).update(spec={**run.spec, "rewards_beside": True})
    form = LaunchForm(as_sent(client.get(f"/runs/{run.pk}/clone/").context["form"]), schema=SCHEMA)
    form.is_valid()
    assert form.request().rewards_beside
    assert "scored while others are being generated" in client.get(f"/runs/{run.pk}/spec/").content.decode()


@pytest.mark.parametrize(
    ("draft", "grade", "words"),
    [
        ({"hardware": SERVED, "rewards": (JUDGED, PURE)}, Grade.NOTE, "judged waits for the whole batch"),
        ({"hardware": SERVED, "rewards": (JUDGED,), "rewards_beside": True}, None, ""),
        ({"hardware": SERVED, "rewards": (PURE,), "rewards_beside": True}, Grade.WARN, "No reward waits"),
        ({"hardware": ALONE, "rewards": (JUDGED,), "rewards_beside": True}, Grade.STOP, "by transformers"),
        ({"hardware": ALONE, "rewards": (JUDGED,)}, None, ""),
        (
            {"hardware": ALONE, "rewards": (JUDGED,), "rewards_beside": True, "episodes": EpisodeSpec("e", 1)},
            None,
            "",
        ),
        (
            {
                "hardware": SERVED,
                "rewards": (JUDGED,),
                "rewards_beside": True,
                "episodes": dataclasses.replace(EpisodeSpec("e", 1), gateway=GatewaySpec()),
            },
            Grade.STOP,
            "programs drive the episodes",
        ),
    ],
)
def test_preflight_offers_it_where_it_pays_and_stops_it_where_it_cannot_be(
    draft: dict[str, Any], grade: Grade | None, words: str
) -> None:
    found = list(overlapping.check_rewards(Draft(model="m", **draft)))
    assert [finding.grade for finding in found] == ([] if grade is None else [grade])
    assert all(words in finding.cause for finding in found)
