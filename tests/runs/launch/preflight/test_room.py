"""The micro-batch that preflight offers: larger, in the same step, and only where it fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controlplane.catalogue.hardware.shipped import by_slug
from runs.launch import preflight
from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding
from runs.launch.preflight.room import check_guide, offer
from tests.runs.launch.preflight.test_memory import COLOCATE, LORA, SERVER, after, drafted
from workers.contract.run.hardware import ServerSpec

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
    sizes = [offer(a_draft("7b", card)) for card in (24, 60, 80, 400)]
    batches = [found.offered.micro_batch if found else 4 for found in sizes]
    assert batches == sorted(batches)
    assert batches[0] < batches[-1] == 32
    assert all(found.draft.batch.completions == 32 for found in sizes if found)


def test_the_smallest_of_the_hosts_decides() -> None:
    draft, small = a_draft("7b", 400), a_draft("7b", 44)
    both, alone = offer(replace(draft, hosts=(*draft.hosts, replace(small.hosts[0], name="small")))), offer(small)
    assert both is not None
    assert alone is not None
    assert both.offered.micro_batch == alone.offered.micro_batch < 32


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


def test_vllm_in_the_trainer_gives_what_a_larger_batch_needs_and_takes_what_its_cache_lacks() -> None:
    crowded = replace(COLOCATE, colocate_memory_utilization=0.6)
    less = offer(drafted("1.5b", crowded, 24, lora=LORA, grpo=SMALL))
    assert less is not None
    assert less.offered.micro_batch > 4
    assert less.offered.share is not None
    assert less.offered.share < 0.6
    starved = replace(SERVER, server=replace(SERVER.server or ServerSpec(), gpu_memory_utilization=0.23))
    more = offer(drafted("7b", starved, 80, lora=LORA, grpo={**SMALL, "max_completion_length": 900}))
    assert more is not None
    assert more.offered.share is not None
    assert more.offered.share > 0.23
    assert more.values["vllm_share"] == f"{more.offered.share:g}"
    assert more.gain > 1.05


def test_the_gain_is_told_in_steps_per_second() -> None:
    [found], reckoned = offers(a_draft()), offer(a_draft())
    assert reckoned is not None
    assert f"{reckoned.gain:.2g} times the steps per second" in found.fix
    assert "CUDA graphs" in found.fix


def test_a_step_divided_otherwise_is_no_deviation_from_the_profile() -> None:
    made_for = {"per_device_train_batch_size": "4", "gradient_accumulation_steps": "8"}
    draft = replace(a_draft(per_device_train_batch_size=32, gradient_accumulation_steps=1), made_for=made_for)
    assert not [found for found in preflight.check(draft) if found.cause.startswith("The profile was made for")]
    fewer = replace(draft, grpo={**draft.grpo, "per_device_train_batch_size": 16})
    assert [found for found in preflight.check(fewer) if found.cause.startswith("The profile was made for")]


def test_the_guides_own_batch_is_one_click_away_and_comes_back_by_another() -> None:
    shipped = by_slug("dual-gpu-hot-swap")
    built_in = drafted("3b", shipped.spec, 24, lora=shipped.lora, grpo=shipped.batch)
    [found] = list(check_guide(built_in))
    assert found.fixes[0].values == {"per_device_train_batch_size": "4", "gradient_accumulation_steps": "8"}
    guides = after(built_in, found.fixes[0])
    assert not list(check_guide(guides))
    back = offer(guides)
    assert back is not None
    assert back.offered.micro_batch == shipped.batch["per_device_train_batch_size"]
