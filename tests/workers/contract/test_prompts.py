"""Why a run's prompts can't be chosen."""

from __future__ import annotations

import pytest

from workers.contract.run.episodes import EpisodeSpec, GatewaySpec, PartSpec
from workers.contract.run.prompts import PromptsSpec, problems

BOTH = PromptsSpec(extra_rounds=2, spread_in="accuracy", by_difficulty=True)


AGENTS = EpisodeSpec("agents", 1, (), gateway=GatewaySpec())
TOOLS = EpisodeSpec("tools", 1, (PartSpec("calc", "calculator"),))


def words(prompts: PromptsSpec, episodes: EpisodeSpec | None = None, *, per_turn: bool = False) -> str:
    found = problems(prompts, ("accuracy", "format"), episodes, per_turn=per_turn)
    return " ".join(f"{problem.field}: {problem}" for problem in found)


def test_nothing_is_wrong_with_both_or_with_neither() -> None:
    assert words(BOTH) == words(BOTH, episodes=TOOLS) == words(PromptsSpec(), episodes=AGENTS) == ""
    assert not PromptsSpec().on


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (words(PromptsSpec(extra_rounds=21)), "extra_rounds: 21 is not a valid"),
        (words(PromptsSpec(least_weight=0.0, by_difficulty=True)), "least_weight: 0 is not a valid minimum weight."),
        (words(PromptsSpec(extra_rounds=1, spread_in="acuracy")), "Use one of: accuracy, format"),
        (
            words(BOTH, episodes=AGENTS),
            "extra_rounds: Prompts can't be replaced or weighted if programs drive",
        ),
        (words(PromptsSpec(by_difficulty=True), episodes=AGENTS), "by_difficulty: "),
        (words(BOTH, per_turn=True), "scores each turn"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field(found: str, sentence: str) -> None:
    assert sentence in found
