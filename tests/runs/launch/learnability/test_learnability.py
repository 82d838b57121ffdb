"""Checking learnability from the New run page: what is launched, who may, and how its completions are read."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from controlplane.catalogue.datasets.models import DatasetVersion
from runs.engine.models import Run
from runs.engine.records import MetricRow
from runs.engine.states import RunStatus, final_status
from runs.engine.transitions import move
from runs.intake.host_api import uploads
from runs.launch.learnability import results
from runs.launch.learnability.results import CheckResult, ComponentRange
from tests.controlplane.people import operator, viewer
from tests.runs.builders import FREE
from tests.runs.launch.new_run import launching_page
from tests.runs.launch.new_run.launching_page import a_ready_host
from workers.contract.run.learnability import CHECK
from workers.contract.wire.names import EndReason

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]

NEW = "/runs/new/learnability"


def a_check(**changes: Any) -> Run:
    a_ready_host()
    answer = operator().post(NEW, page(**changes))
    assert answer.status_code == 302, answer.context["findings"]
    check = Run.objects.get()
    assert answer["Location"] == f"/runs/{check.pk}/learnability/"
    return check


def page(**changes: Any) -> dict[str, Any]:
    return launching_page.sent(**{"key": "page-1", "max_steps": 300, "num_generations": 2, **changes})


def ended(check: Run, reason: EndReason = EndReason.COMPLETED, detail: str = "") -> None:
    attempt = check.attempts.get()
    move(attempt, RunStatus.STARTING, reason="test", actor="test", facts={"first_seq": 1})
    move(attempt, RunStatus.RUNNING, reason="test", actor="test")
    move(attempt, final_status(reason), reason=reason, actor="test", detail=detail, facts={"receipt": FREE})


def group(*rewards: float | None, row: int = 1, end: str = "eos") -> dict[str, Any]:
    told = [{"text": "a", "tokens": 5, "end": end, "rewards": {"format": r}, "reward": r} for r in rewards]
    return {"step": 1, "row": row, "prompt": "p", "answer": "4", "completions": told, "mode": "train"}


def told(check: Run, *groups: dict[str, Any]) -> None:
    uploads.samples(check.attempts.get(), 1, list(groups))


def test_a_check_has_the_settings_of_the_run_and_a_kind_of_its_own() -> None:
    check = a_check()
    assert (check.kind, check.spec["kind"]) == (CHECK, CHECK)
    assert check.spec["grpo"]["max_steps"] == 300
    assert check.name not in operator().get("/runs/").content.decode().partition("<tbody")[2]
    assert check.name in operator().get("/runs/?kind=check").content.decode()


def test_the_same_page_checks_once_and_can_still_be_launched() -> None:
    a_ready_host()
    form, client = page(), operator()
    first, again = (client.post(NEW, form)["Location"] for _ in range(2))
    assert first == again
    assert client.post("/runs/new/", form).status_code == 302
    assert sorted(Run.objects.values_list("kind", flat=True)) == [CHECK, "train"]


def test_what_could_not_be_launched_can_t_be_checked() -> None:
    a_ready_host()
    answer = operator().post(NEW, page(num_generations=1))
    assert answer.status_code == 422
    assert not Run.objects.exists()


def test_a_viewer_reads_a_check_and_starts_none() -> None:
    check = a_check()
    assert viewer().post(NEW, page()).status_code == 403
    assert viewer().get(f"/runs/{check.pk}/learnability/").status_code == 200


def test_another_run_has_no_learnability_page() -> None:
    check = a_check()
    Run.objects.update(kind="train")
    assert operator().get(f"/runs/{check.pk}/learnability/")["Location"] == f"/runs/{check.pk}/"


def test_the_page_follows_a_check_to_its_end() -> None:
    check = a_check()
    asked = {"headers": {"HX-Request": "true"}}
    assert operator().get(f"/runs/{check.pk}/learnability/", **asked).status_code == 200
    told(check, group(1.0, 0.0), group(0.5, 0.5, row=2))
    ended(check)
    answer = operator().get(f"/runs/{check.pk}/learnability/", **asked)
    assert answer.status_code == 286
    assert "in 50% of the groups, the completions differ" in " ".join(answer.content.decode().split())


def test_a_check_that_failed_says_why() -> None:
    check = a_check()
    ended(check, EndReason.TRAINER_EXITED, "It ran into a wall.")
    text = operator().get(f"/runs/{check.pk}/learnability/").content.decode()
    assert "It ran into a wall." in text
    assert "No completion was sampled" not in text


def test_groups_rewards_and_solve_rates_are_counted() -> None:
    check = a_check()
    told(
        check,
        group(1.0, 0.0, row=1),
        group(1.0, 1.0, row=2),
        group(0.0, 0.0, row=3),
        group(None, 1.0, row=4, end="length"),
    )
    found = results.of_run(check)
    assert (found.groups, found.completions, found.flat, found.cut) == (4, 8, 0.75, 0.25)
    assert found.components == (ComponentRange("format", 0.0, 4 / 7, 1.0, flat=0.75, failed=1 / 8),)
    assert found.rates == {"fit": 2, "always": 1, "never": 1}
    assert found.solve_rate == 0.5
    assert found.mean_tokens == 5


def test_the_run_s_time_is_that_of_the_steps_after_the_first() -> None:
    check = a_check(num_iterations=2)
    attempt = check.attempts.get()
    for step, seconds in enumerate((9.0, 1.0, 3.0, 1.0, 3.0, 1.0), 1):
        tokens = {"num_tokens": 100.0 * step} if step % 2 else {}  # every other step reuses completions
        values = {"step_time": seconds, **tokens}
        MetricRow.objects.create(run=check, attempt=attempt, seq=step, t=step, kind="train", step=step, values=values)
    found = results.of_run(check)
    assert (found.step_s, found.run_s) == (2.0, 600.0)


def test_each_reward_s_time_is_that_of_the_batches_after_the_first() -> None:
    check = a_check()
    attempt = check.attempts.get()
    name = check.spec["rewards"][0]["name"]
    for step, seconds in enumerate((9.0, 1.0, 3.0), 1):
        values = {f"time/rewards/{name}_s": seconds}
        MetricRow.objects.create(run=check, attempt=attempt, seq=step, t=step, kind="train", step=step, values=values)
    assert [component.time_s for component in results.of_run(check).components] == [2.0]


def three_prompts(check: Run) -> None:
    """One never, one sometimes and one always solved; validation rows and others were not sampled."""
    told(check, group(0.0, 0.0, row=1), group(1.0, 0.0, row=2), group(1.0, 1.0, row=3))
    ended(check)


def filtered(check: Run, client: Client | None = None, **bounds: Any) -> HttpResponse:
    asked = {"low": 20, "high": 80, **bounds}
    return (client or operator()).post(f"/runs/{check.pk}/learnability/filter", asked, follow=True)


def test_prompts_solved_too_rarely_or_too_often_are_left_out_of_a_new_version() -> None:
    check = a_check()
    three_prompts(check)
    text = filtered(check).content.decode()
    made = DatasetVersion.objects.get(parent=check.dataset_version)
    assert made.source == {
        "filter": {"left_out": [1, 3]},
        "why": f"keeping prompts solved 20 to 80 % in run {check.pk}",
    }
    assert "without 2 rows by number" in text


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"low": 0, "high": 100}, "there is nothing to filter out"),
        ({"low": 80, "high": 20}, "80 % is more than 20 %"),
        ({"low": "many"}, "whole percentages from 0 to 100"),
        ({"high": 101}, "whole percentages from 0 to 100"),
    ],
)
def test_bounds_that_make_no_version_say_so(bounds: dict[str, Any], words: str) -> None:
    check = a_check()
    three_prompts(check)
    assert words in filtered(check, **bounds).content.decode()
    assert not DatasetVersion.objects.filter(parent__isnull=False).exists()


def test_a_viewer_filters_nothing() -> None:
    check = a_check()
    three_prompts(check)
    assert filtered(check, viewer()).status_code == 403


def test_every_prompt_can_be_sampled_by_a_check_with_the_same_settings() -> None:
    check = a_check()
    three_prompts(check)
    client, address = operator(), f"/runs/{check.pk}/learnability/every-prompt"
    first, again = (client.post(address)["Location"] for _ in range(2))
    assert first == again
    whole = Run.objects.exclude(pk=check.pk).get()
    assert (whole.kind, whole.spec["check_groups"], whole.spec["grpo"]) == (CHECK, 80, check.spec["grpo"])
    assert viewer().post(address).status_code == 403


SOUND = CheckResult(groups=64, completions=512, flat=0.2, solve_rate=0.5)


@pytest.mark.parametrize(
    ("changes", "grade", "words"),
    [
        ({}, "good", "in 80% of the groups"),
        ({"groups": 0}, "bad", "No completion was sampled"),
        ({"flat": 0.95, "solve_rate": 0.02}, "bad", "Choose easier prompts"),
        ({"flat": 0.95, "solve_rate": 0.99}, "bad", "Choose harder prompts"),
        ({"flat": 0.7}, "warn", "Raise the temperature"),
        ({"cut": 0.3}, "warn", "Allow longer completions"),
        ({"cut": 0.3, "flat": 0.95, "solve_rate": None}, "bad", "got the same reward"),
        ({"components": (ComponentRange("right", 0, 0, 0, 0.97, failed=0),)}, "warn", "only from the others"),
        ({"components": (ComponentRange("judge", 0, 0, 0, 0, failed=0.6),)}, "bad", "The reward judge gave no score"),
    ],
)
def test_the_verdict_names_the_worst_and_what_to_change(changes: dict[str, Any], grade: str, words: str) -> None:
    verdict = results.verdict(CheckResult(**{**vars(SOUND), **changes}))
    assert verdict.grade == grade
    assert words in f"{verdict.text} {verdict.fix}"
