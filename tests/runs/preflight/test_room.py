"""The micro-batch that preflight offers: larger, in the same step, and only where it fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runs import preflight
from runs.preflight import Draft, Finding
from runs.preflight.room import largest
from tests.runs.preflight.test_memory import COLOCATE, LORA, SERVER, after, drafted

SMALL = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 8, "num_generations": 4}


def a_draft(shape: str = "1.5b", card_gib: float = 80, **grpo: Any) -> Draft:
    return drafted(shape, SERVER, card_gib, lora=LORA, grpo={**SMALL, **grpo})


def offers(draft: Draft) -> list[Finding]:
    return [found for found in preflight.check(draft) if found.fixes and "Use the memory" in found.fixes[0].label]


def test_a_card_with_room_is_offered_the_same_step_in_one_pass() -> None:
    [offer] = offers(a_draft())
    assert offer.fixes[0].values == {"per_device_train_batch_size": "32", "gradient_accumulation_steps": "1"}
    assert "of 80 GiB" in offer.cause
    assert not offers(after(a_draft(), offer.fixes[0]))


def test_a_smaller_card_is_offered_what_fits() -> None:
    sizes = [largest(a_draft("7b", card)) for card in (24, 60, 80, 400)]
    batches = [draft.batch.per_device_train_batch_size if draft else 4 for draft in sizes]
    assert batches == sorted(batches)
    assert batches[0] < batches[-1] == 32
    assert all(draft.batch.completions == 32 for draft in sizes if draft)


def test_the_smallest_of_the_hosts_decides() -> None:
    draft, small = a_draft("7b", 400), a_draft("7b", 44)
    both = largest(replace(draft, hosts=(*draft.hosts, replace(small.hosts[0], name="small"))))
    alone = largest(small)
    assert both is not None
    assert alone is not None
    assert both.batch == alone.batch
    assert both.batch.per_device_train_batch_size < 32


@pytest.mark.parametrize(
    "grpo",
    [
        {"steps_per_generation": 8},
        {"generation_batch_size": 32},
        {"loss_type": "bnpo"},
        {"per_device_train_batch_size": 32, "gradient_accumulation_steps": 1},
    ],
)
def test_nothing_is_offered_where_the_arithmetic_would_change(grpo: dict[str, Any]) -> None:
    assert not offers(a_draft(**grpo))


def test_vllm_in_the_trainer_keeps_its_share() -> None:
    roomy, tight = (drafted("1.5b", COLOCATE, card, lora=LORA, grpo=SMALL) for card in (80, 16))
    assert len(offers(roomy)) == 1
    assert largest(tight) is None or largest(tight).batch.per_device_train_batch_size < 32


def test_a_step_divided_otherwise_is_no_deviation_from_the_profile() -> None:
    made_for = {"per_device_train_batch_size": "4", "gradient_accumulation_steps": "8"}
    draft = replace(a_draft(per_device_train_batch_size=32, gradient_accumulation_steps=1), made_for=made_for)
    assert not [found for found in preflight.check(draft) if found.cause.startswith("The profile was made for")]
    fewer = replace(draft, grpo={**draft.grpo, "per_device_train_batch_size": 16})
    assert [found for found in preflight.check(fewer) if found.cause.startswith("The profile was made for")]
