"""The measure of pure rewards measures what it says: the whole library on a group of pages."""

from __future__ import annotations

import pytest

from tests.benchmarks import pure_rewards
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Cost
from workers.rewards.scoring import score


def test_a_group_is_64_different_pages() -> None:
    texts = {completion.text for completion in pure_rewards.completions()}
    assert len(texts) == 64
    assert {len(text) for text in texts} == {2_000}


def test_every_pure_reward_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pure_rewards, "ROUNDS", 1)
    told = pure_rewards.measure()
    assert set(told["by_reward_ms"]) == {key for key, reward in LIBRARY.items() if reward.cost is Cost.PURE}
    assert told["pure_rewards"] == len(told["by_reward_ms"])
    assert told["pure_group_ms"] > 0


def test_no_reward_is_fast_because_it_has_nothing_to_do(subtests: pytest.Subtests) -> None:
    for key in [key for key, reward in LIBRARY.items() if reward.cost is Cost.PURE]:
        with subtests.test(key=key):
            rows = [{"answer": pure_rewards.ANSWERS.get(key, "#### 18")}] * 64
            given = score(LIBRARY[key], pure_rewards.completions(), rows, pure_rewards.PARAMS.get(key, {}))
            assert None not in given.values
