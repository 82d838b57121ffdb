"""Which profile for what: the ranking of the catalogue for a model and hosts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runs.launch.preflight.choosing import Choice, choices
from tests.runs.launch.preflight.test_memory import ONE, PROFILES, drafted


def ranked(shape: str, card_gib: float, gpus: int) -> list[Choice]:
    return choices(drafted(shape, ONE, card_gib, gpus=gpus, profiles=PROFILES))


@pytest.mark.parametrize(
    ("shape", "card_gib", "gpus", "first"),
    [
        ("1.5b", 24, 2, "Dual GPU, LoRA hot-swap"),
        ("7b", 16, 1, "16 GB aggressive, 4-bit"),
        ("1.5b", 24, 1, "Single GPU, server beside the trainer"),
        ("3b", 40, 8, "7 + 1 GPUs, ZeRO-3"),
        ("0.5b", 24, 4, "Four GPUs, 2 load-balanced servers + 2 trainers"),
    ],
)
def test_the_fastest_that_fits_comes_first(shape: str, card_gib: float, gpus: int, first: str) -> None:
    found = ranked(shape, card_gib, gpus)
    assert len(found) == len(PROFILES)
    assert found[0].fits
    assert first in [choice.name for choice in found[:3] if choice.fits], [(c.name, c.fits, c.why) for c in found[:6]]
    fits = [choice.fits for choice in found]
    assert fits == sorted(fits, reverse=True)


def test_what_does_not_fit_says_why() -> None:
    why = {choice.name: choice.why for choice in ranked("7b", 16, 1) if not choice.fits}
    assert "has 1 GPU, but the profile needs 4" in why["Four GPUs, 2 load-balanced servers + 2 trainers"]
    assert "most of it weights" in why["Single GPU, server beside the trainer"]


def test_each_has_its_reasons_and_the_values_that_choose_it() -> None:
    found = ranked("1.5b", 24, 4)
    assert all(choice.reasons and choice.values["profile"] for choice in found)
    slow = next(choice for choice in found if choice.name == "16 GB standard, 4-bit")
    assert slow.reasons[0].startswith("Completions come from the trainer itself")


def test_the_chosen_one_is_marked_and_without_a_host_none_fits() -> None:
    draft = drafted("1.5b", replace(ONE, profile="Dual GPU, LoRA hot-swap"), profiles=PROFILES)
    assert [choice.name for choice in choices(draft) if choice.chosen] == ["Dual GPU, LoRA hot-swap"]
    assert not any(choice.fits for choice in choices(replace(draft, hosts=())))


def test_without_a_model_fit_is_by_the_number_of_gpus() -> None:
    draft = replace(drafted("1.5b", ONE, gpus=1, profiles=PROFILES), inspection=None)
    one = next(choice for choice in choices(draft) if choice.name == "Single GPU, colocated vLLM")
    assert one.fits
    assert "not known yet" in one.why
