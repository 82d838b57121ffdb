"""How long a run will take: the rule of thumb beside what was measured, and the choice among past runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from controlplane.catalogue.hardware.prices import Money
from runs.launch.preflight.draft import Draft
from runs.launch.preflight.duration import PastRun, PastStep, by_past, by_rule, nearest, pace
from tests.gpu import estimates, results, setups
from tests.runs.launch.preflight.test_memory import COLOCATE, LORA, ONE, SERVER, drafted
from workers.contract.run.hardware import HardwareSpec, Quantization
from workers.contract.stack.step_time import StepWorkload, generation_s, training_s

MEASURED = [entry for entry in json.loads(results.COMMITTED.read_text()) if entry.get("step_median_s")]
BATCH = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "max_completion_length": 412}
"""With prompts of 100 tokens 4,096 tokens a step."""


def a_draft(spec: HardwareSpec = COLOCATE, **grpo: Any) -> Draft:
    return drafted("1.5b", spec, 80, grpo={**BATCH, **grpo})


def past(name: str = "earlier", spec: HardwareSpec = COLOCATE, lora: bool = False, **grpo: Any) -> PastRun:
    return PastRun(name, name, f"{name}-1", a_draft().hosts[0].name, spec, {**BATCH, **grpo}, lora)


def steady(seconds: float = 2.0, tokens: float = 4000.0, count: int = 6) -> list[PastStep]:
    """The first step takes long."""
    return [PastStep(number, seconds if number > 1 else 90.0, tokens * number) for number in range(1, count + 1)]


def test_the_rule_of_thumb_is_within_a_factor_of_two_of_every_recorded_run(subtests: pytest.Subtests) -> None:
    for name in [entry["name"] for entry in MEASURED]:
        with subtests.test(name=name):
            entry = next(entry for entry in MEASURED if entry["name"] == name)
            setup = setups.EVERYTHING[name]
            assert isinstance(setup, setups.Setup)
            spec, settings, _ = estimates.of_setup(setup)
            completions = settings.batch * settings.passes * spec.processes
            length, limit = settings.length, settings.completion_tokens
            work = StepWorkload(completions, length, settings.batch, settings.passes, limit, generations=1)
            total = estimates.shape_named(setup.shape).total
            seconds = generation_s(work, spec, total) + training_s(work, spec, total)
            assert 0.5 < seconds / entry["step_median_s"] < 2, f"{seconds:.2f} s for {entry['step_median_s']} s"


def test_the_rule_counts_gpus_steps_and_money() -> None:
    draft = a_draft(SERVER, max_steps=1000)
    answer = by_rule(draft, replace(draft.hosts[0], gpu_hour=Money(3.0, "$")))
    assert answer
    assert (answer.steps, answer.gpus, answer.tokens) == (1000, 2, 4096)
    assert answer.seconds == pytest.approx(1000 * answer.step_s)
    assert answer.gpu_hours == pytest.approx(2 * 1000 * answer.step_s / 3600)
    assert answer.cost == Money(pytest.approx(3 * (answer.gpu_hours or 0)), "$")


def test_one_step_ahead_a_step_takes_as_long_as_the_longer_part_and_is_compared_with_its_like() -> None:
    draft = a_draft(SERVER)
    ahead = replace(draft, ahead=True)
    turns, beside = by_rule(draft, draft.hosts[0]), by_rule(ahead, ahead.hosts[0])
    assert turns
    assert beside
    assert turns.step_s / 2 <= beside.step_s < turns.step_s
    runs = [past("turns", SERVER), replace(past("ahead", SERVER), ahead=True)]
    assert [[run.name for run in nearest(one, runs)] for one in (draft, ahead)] == [["turns"], ["ahead"]]


def test_reused_completions_cost_no_second_generation() -> None:
    once, twice = (by_rule(draft, draft.hosts[0]) for draft in (a_draft(), a_draft(num_iterations=2)))
    assert once
    assert twice
    assert twice.tokens == once.tokens / 2
    assert twice.step_s < once.step_s


@pytest.mark.parametrize(
    "draft",
    [
        a_draft(replace(ONE, trainer_gpus=0)),
        replace(a_draft(), inspection=None),
        a_draft(max_completion_length=0),
        replace(a_draft(), hardware=None),
    ],
)
def test_without_gpus_size_or_lengths_there_is_no_rule(draft: Draft) -> None:
    assert by_rule(draft, draft.hosts[0]) is None


def test_without_the_number_of_steps_a_step_still_has_its_time() -> None:
    draft = replace(a_draft(), data=None)
    answer = by_rule(draft, draft.hosts[0])
    assert answer
    assert answer.step_s > 0
    assert (answer.seconds, answer.gpu_hours, answer.cost) == (None, None, None)


@pytest.mark.parametrize(
    "other",
    [
        past(spec=SERVER),
        past(spec=ONE),
        past(spec=replace(COLOCATE, trainer_gpus=2, processes=2)),
        past(spec=replace(COLOCATE, quantization=Quantization.NF4)),
        past(lora=True),
        past(num_iterations=2),
        past(max_completion_length=0),
    ],
)
def test_a_run_of_another_kind_says_nothing(other: PastRun) -> None:
    assert nearest(a_draft(), [other]) == []


def test_the_nearest_batch_and_lengths_come_first_then_the_same_profile_then_the_newest() -> None:
    elsewhere = past("other profile", replace(COLOCATE, profile="another"))
    far, longer = past("far", per_device_train_batch_size=64), past("longer", max_completion_length=924)
    ranked = nearest(a_draft(), [far, longer, elsewhere, past("new"), past("old")])
    assert [run.name for run in ranked] == ["new", "old", "other profile", "longer", "far"]


def test_the_pace_is_a_median_without_the_first_step() -> None:
    slow = [*steady(), PastStep(7, 300.0, 28_000)]
    measured = pace(slow, 1)
    assert measured
    assert (measured.step_s, measured.tokens, measured.steps) == (2.0, 4000.0, 6)
    assert measured.tokens_per_s == 2000


def test_the_two_steps_of_a_trial_are_enough() -> None:
    measured = pace(steady(count=2), 1)
    assert measured
    assert (measured.step_s, measured.steps) == (2.0, 1)


def test_steps_that_reuse_completions_count_with_the_one_that_generated_them() -> None:
    steps = [PastStep(n, 3.0 if n % 2 else 1.0, 4000.0 * ((n + 1) // 2)) for n in range(1, 9)]
    measured = pace(steps, 2)
    assert measured
    assert (measured.step_s, measured.tokens) == (2.0, 2000.0)


@pytest.mark.parametrize("steps", [[], steady(count=1), steady(tokens=0.0), steady(seconds=0.0), [*steady()[:1]] * 3])
def test_too_few_or_empty_steps_have_no_pace(steps: list[PastStep]) -> None:
    assert pace(steps, 1) is None


def test_tokens_are_scaled_and_take_their_time_at_the_measured_rate() -> None:
    measured = pace(steady(), 1)
    assert measured
    draft = replace(a_draft(max_completion_length=924, max_steps=10), lora=LORA)
    answer = by_past(draft, past(lora=True), measured)
    assert answer
    assert (answer.tokens, answer.step_s, answer.seconds) == (8000, 4.0, 40.0)
    assert answer.scaled
    alike = by_past(a_draft(), past(), measured)
    assert alike
    assert (alike.step_s, alike.scaled) == (2.0, False)
