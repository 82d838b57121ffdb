"""Rewards that are gamed: the finding says so, and leads to the stored completions that show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.urls import reverse

from runs.engine.records import SampleRow
from runs.engine.spec import spec_of
from runs.insight.health import evidence, examples, page
from runs.insight.health.config import config_of
from runs.insight.health.history import History, columns_of
from runs.insight.health.judging.rules import BY_ID, RULES
from runs.pages.reports.run_document import _finding
from tests.benchmarks._gamed import HACKED, HONEST, Run
from tests.runs.api.clients import Program
from tests.runs.builders import a_host, a_run, an_attempt
from tests.runs.insight.health.test_config import spec
from tests.runs.insight.health.watched import Watched
from workers.contract.run.spec import RewardSpec, RunSpec

JUDGED = ("an evaluated judge falls", "an observed check stays flat", "an observed component falls")
LONG = ("length is paid as style", "length is paid without an answer check")
WELL = (
    "a judge at its floor",
    "everything rises",
    "reasoning grows with the accuracy",
    "a length penalty",
)


def watched(kinds: dict[str, Any], name: str) -> Watched:
    run = Run(name, kinds[name], 0)
    watched, groups = Watched(run.config()), []
    for lived in run.lines():
        watched.rows.append(lived.row)
        groups += lived.groups
        if watched.step % 15 == 0:
            watched.look(groups=groups)
            groups = []
    return watched


@pytest.mark.parametrize(
    ("rule", "name"), [*(("judge_parted", name) for name in JUDGED), *(("length_explains", name) for name in LONG)]
)
def test_a_gamed_reward_is_a_warning_that_names_the_judge_or_the_length(rule: str, name: str) -> None:
    run = watched(HACKED, name)
    assert rule in run.named
    assert {level for _, opened, level in run.opened if opened == rule} <= {"warning"}
    finding = run.finding(rule)
    if finding is not None:
        text = finding["sentence"] + finding["try"]
        assert "{" not in text
        assert ("length" if rule == "length_explains" else "isn’t trained on") in text


@pytest.mark.parametrize("name", WELL)
def test_an_honest_run_that_looks_alike_has_no_such_finding(name: str) -> None:
    assert not {"judge_parted", "length_explains"} & set(watched(HONEST, name).named)


def test_causes_have_no_cycles() -> None:
    def roots(rule: str, seen: tuple[str, ...]) -> None:
        assert rule not in seen, (*seen, rule)
        for cause in BY_ID[rule].follows:
            if cause in BY_ID:
                roots(cause, (*seen, rule))

    for rule in RULES:
        roots(rule.id, ())


def test_rewards_that_are_not_trained_on_are_judges() -> None:
    assert [metric for metric, _ in config_of(a_spec()).judges] == ["rewards/seen/mean", "eval_rewards/strict/mean"]


def a_spec() -> RunSpec:
    rewards = (RewardSpec("right", "numeric_match"), RewardSpec("seen", "numeric_match", 0.0))
    return replace(spec(*rewards), eval_rewards=(RewardSpec("strict", "numeric_match"),))


def test_the_memory_prolongs_evaluations_and_sums_beyond_the_newest_lines() -> None:
    rows = [(step, 0.0, {"reward": 0.5, "eval_rewards/strict/mean": step / 100}) for step in range(10, 101, 10)]
    memory: dict[str, Any] = {}
    for end in (4, 7, 10):
        history = History(config_of(a_spec()), columns_of(rows[end - 3 : end]), step=rows[end - 1][0])
        evidence.from_memory(history, memory)
        memory = evidence.to_memory(history)
    assert [step for step, _ in memory["eval_rewards/strict/mean"]] == list(range(20, 101, 10))
    assert "reward" not in memory


def _completion(number: int, reward: float, right: float, tokens: int) -> dict[str, Any]:
    return {"text": f"answer {number}", "reward": reward, "rewards": {"right": right}, "tokens": tokens, "end": "eos"}


@pytest.mark.django_db
def test_a_finding_links_to_the_completions_that_show_it_best_on_the_page_in_the_api_and_in_the_report() -> None:
    attempt = an_attempt(run=a_run(host=a_host()))
    run = attempt.run
    for line in range(1, 5):
        data = {"prompt": "p", "completions": [_completion(n, 0.2 * n, float(n < 4), 10 * n) for n in range(1, 6)]}
        SampleRow.objects.create(run=run, attempt=attempt, line=line, step=line, completions=5, data=data)
    finding: dict[str, Any] = {"rule": "components", "level": "warning", "metric": "rewards/right/mean"}
    examples.show(run, config_of(spec_of(run)), [finding], {}, 60)
    shown = finding["examples"]
    assert 3 <= len(shown) <= 5
    assert {example["completion"] for example in shown[:4]} == {5}
    assert shown[0]["score"] == 0
    again: dict[str, Any] = {**finding, "examples": []}
    SampleRow.objects.all().delete()
    examples.show(run, config_of(spec_of(run)), [again], {"findings": [finding]}, 70)
    assert again["examples"] == shown

    finding |= {
        "title": "One component rises", "value": 0.2, "value_text": "20%", "bound_text": "", "since_step": 5,
        "sentence": "It rises.", "try": "", "follows": "", "source": "our own", "format": "percent", "cause": "",
    }  # fmt: skip
    run.health = {"verdict": "warning", "step": 60, "at": None, "findings": [finding], "checks": []}
    run.save(update_fields=["health"])
    link = reverse("run_completion_group", args=[run.pk, shown[0]["group"]]) + "#completion-5"
    assert any(url == link and "right 0" in label for label, url in page._findings(run)[0]["links"])
    assert "Examples: Step " in _finding(finding)
    answer = Program().get(f"runs/{run.pk}/health").json()
    assert answer["findings"][0]["examples"] == shown
