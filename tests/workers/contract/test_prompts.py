"""Why a run's prompts can't be chosen."""

from __future__ import annotations

import pytest

from workers.contract import RewardSpec
from workers.contract.prompts import PromptsSpec, problems

REWARDS = (RewardSpec("accuracy", "numeric_match"), RewardSpec("format", "answer_tag", per_turn=False))
BOTH = PromptsSpec(extra_rounds=2, spread_in="accuracy", by_difficulty=True)


def words(prompts: PromptsSpec, rewards: tuple[RewardSpec, ...] = REWARDS, *, episodes: bool = False) -> str:
    return " ".join(f"{one.field}: {one}" for one in problems(prompts, rewards, episodes=episodes))


def test_nothing_is_wrong_with_both_or_with_neither() -> None:
    assert words(BOTH) == words(PromptsSpec(), episodes=True) == ""
    assert not PromptsSpec().on


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (words(PromptsSpec(extra_rounds=21)), "extra_rounds: 21 extra rounds"),
        (words(PromptsSpec(least_weight=0.0, by_difficulty=True)), "least_weight: 0 is not a possible least weight."),
        (words(PromptsSpec(extra_rounds=1, spread_in="acuracy")), "Use one of: accuracy, format"),
        (
            words(BOTH, episodes=True),
            "extra_rounds: Prompts can't be replaced or weighted in a run with an env",
        ),
        (words(PromptsSpec(by_difficulty=True), episodes=True), "by_difficulty: "),
        (words(BOTH, (*REWARDS, RewardSpec("turns", "think_tags", per_turn=True))), "score each turn"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field(found: str, sentence: str) -> None:
    assert sentence in found
