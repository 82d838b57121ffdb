"""The table of the New run page's fields, held to the contract's table of settings, and values that programs send."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.catalogue.rewards.models import RewardVersion
from runs.launch.new_run.choices import LaunchChoices, choices_of
from runs.launch.new_run.fields.grid import MAX_GROUP_RUNS
from runs.launch.new_run.fields.table import BY_FIELD
from tests.runs.launch.new_run.launching_page import SCHEMA, a_config, a_version, cpu_profile
from workers.contract.run import sinks
from workers.contract.run.settings import FIELDS
from workers.contract.stack.training_rules import CHOICES

pytestmark = pytest.mark.django_db


def chosen(**values: Any) -> LaunchChoices:
    rewards = RewardVersion.objects.first() or a_config()
    rows = {"dataset_version": a_version().pk, "reward_version": rewards.pk, "profile": cpu_profile().pk}
    first = {name: field.default for name, field in BY_FIELD.items() if field.default is not None}
    return choices_of({**first, "model": "/models/tiny", "priority": 0, **rows, **values}, SCHEMA)


def test_every_setting_of_a_run_has_a_field() -> None:
    assert set(FIELDS.values()) <= set(BY_FIELD)


def test_bounds_that_two_tables_have_are_the_same() -> None:
    assert {BY_FIELD["seeds"].high, BY_FIELD["at_once"].high} == {MAX_GROUP_RUNS}
    assert f"at most {MAX_GROUP_RUNS} runs" in BY_FIELD["grid"].help
    assert {BY_FIELD["send_project"].longest, BY_FIELD["send_name"].longest} == {sinks.MAX_TEXT_LENGTH}
    for name in ("loss_type", "scale_rewards"):
        assert sorted(value for value, _ in BY_FIELD[name].choices) == sorted(CHOICES[name])


def test_values_of_a_program_have_the_types_of_json_or_are_text() -> None:
    typed = chosen(max_steps=5, learning_rate=3e-7, use_lora=True, hang_stop=False, stop_metric="kl", stop_steps=9)
    text = chosen(
        max_steps="5", learning_rate="3e-7", use_lora="on", hang_stop="false", stop_metric="kl", stop_steps="9"
    )
    assert typed.is_valid(), typed.errors
    assert (typed.request().grpo, typed.request().limits) == (text.request().grpo, text.request().limits)
    assert typed.request().lora is not None


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"max_steps": True}, "Enter a whole number."),
        ({"learning_rate": "fast"}, "Enter a number."),
        ({"lora_r": 0, "use_lora": True}, "At least 1."),
        ({"attn_implementation": "magic"}, "magic is not one of the available choices"),
        ({"dataset_version": 10**9}, "This no longer exists. Choose another."),
        ({"revision": "a b"}, "Use only letters, digits"),
    ],
)
def test_a_value_that_will_not_do_is_named_with_a_sentence(value: dict[str, Any], sentence: str) -> None:
    choices = chosen(**value)
    assert not choices.is_valid()
    assert sentence in str(choices.errors[next(iter(value))])


def test_the_description_of_a_value_has_its_bounds_and_its_help() -> None:
    described = BY_FIELD["lora_r"].json_schema()
    assert (described["type"], described["minimum"], described["maximum"], described["default"]) == (
        "integer",
        1,
        4096,
        16,
    )
    assert BY_FIELD["learning_rate"].json_schema()["default"] == 1e-6
    assert described["description"] == BY_FIELD["lora_r"].help
