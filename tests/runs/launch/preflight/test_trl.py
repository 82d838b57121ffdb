"""The arithmetic and the enumerations, held against the real GRPOConfig in the trainer's interpreter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.runs.launch.preflight.test_batch import TABLE
from tests.trainer.preloaded import Preloaded
from workers.contract.run.batch_rules import Batch
from workers.contract.stack.training_rules import CHOICES

pytestmark = pytest.mark.trainer

MANY = """
import json, sys
from workers.trainer.describe import check, describe
print(json.dumps({"answers": [check(case) for case in json.load(sys.stdin)], "schema": describe()}))
"""


@pytest.fixture(scope="module")
def told(preloaded: Preloaded) -> dict[str, Any]:
    """One start of the interpreter for the whole table: importing TRL takes seconds."""
    cases = [as_trl(sizes) for sizes, _ in TABLE]
    done = preloaded.run("-c", MANY, stdin=json.dumps(cases))
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def as_trl(sizes: dict[str, Any]) -> dict[str, Any]:
    batch = Batch(**sizes)
    grpo = {name: value for name, value in sizes.items() if name not in ("processes", "evaluates")}
    if batch.evaluates:
        grpo |= {"eval_strategy": "steps", "eval_steps": 5}
    return {"grpo": grpo, "processes": batch.processes}


def test_trl_accepts_and_refuses_the_same_batches(told):
    wrong = [
        (sizes, answer)
        for (sizes, rules), answer in zip(TABLE, told["answers"], strict=True)
        if answer["ok"] == bool(rules)
    ]
    assert wrong == []


def test_the_enumerations_are_those_of_the_trainer(told):
    stated = {field["name"]: field["choices"] for field in told["schema"]["fields"]}
    shared = {name: values for name, values in CHOICES.items() if name in stated}
    assert len(shared) >= 5
    assert {name: sorted(stated[name]) for name in shared} == {name: sorted(values) for name, values in shared.items()}


def test_what_checks_assume_are_the_trainers_defaults(told):
    from workers.contract.stack.training_rules import TRL_DEFAULTS

    defaults = told["schema"]["defaults"]
    assert {name: defaults[name] for name in TRL_DEFAULTS if name in defaults} == {
        name: value for name, value in TRL_DEFAULTS.items() if name in defaults
    }


def test_every_training_field_is_one_of_grpo_config(told):
    from runs.launch.new_run.fields.table import ARGUMENTS

    assert {field["name"] for field in told["schema"]["fields"]} >= {argument.name for argument in ARGUMENTS}
