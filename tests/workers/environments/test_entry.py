from __future__ import annotations

import pytest

from workers.environments.entry import without_thinking


@pytest.mark.parametrize("text", ["e4", "<think>a</think> e4", "a</think>e4", "<think>a</think>e4<think>b"])
def test_a_game_reads_a_message_without_its_thinking(text: str) -> None:
    assert without_thinking(text) == "e4"


def test_thinking_that_never_ends_leaves_nothing() -> None:
    assert without_thinking("<think>a") == ""
