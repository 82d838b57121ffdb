"""`bench tools`: the parts that take no minutes."""

from __future__ import annotations

from tests.benchmarks import tools


def test_advantages_are_those_of_the_formula() -> None:
    assert tools.advantage_error() <= 1e-6


def test_a_turn_of_many_calls_is_measured_with_every_answer_in_its_place() -> None:
    """Which the benchmark asserts itself."""
    assert set(tools.turn()) == {"turn_s_64x0_5", "turn_tool"}
