"""What a run remembers of its prompts, and how it draws them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from workers.contract.run import prompts as metric
from workers.trainer.configuration.spec import SpecError
from workers.trainer.rollouts.prompt_history import FILE, MAX_LITTLE, MAX_UNSEEN, PromptHistory

ROWS = (3, 5, 8, 13)


def history(*, least_weight: float = 0.1) -> PromptHistory:
    return PromptHistory(ROWS, seed=7, least_weight=least_weight)


def taught() -> PromptHistory:
    """Row 3 is never solved, row 5 always, row 8 half the time; row 13 was never seen."""
    made = history()
    for _ in range(8):
        made.note(3, [0.0] * 8)
        made.note(5, [1.0] * 8)
        made.note(8, [0.0, 1.0] * 4)
    return made


def test_weights_follow_the_spread_of_a_prompts_rewards() -> None:
    never, always, half, unseen = taught().weights().tolist()
    assert half == pytest.approx(1.0, abs=0.001)
    assert never == always == pytest.approx(MAX_LITTLE / 2, abs=0.001)
    assert unseen == pytest.approx(0.55, abs=0.001), "as much as those seen, on average"


def test_where_few_are_known_to_teach_the_others_together_stay_within_their_bounds() -> None:
    made = PromptHistory(range(100), seed=7, least_weight=0.1)
    for row in range(20):
        made.note(row, [0.0, 1.0] * 4 if row < 5 else [0.0] * 8)
    teach, little, unseen = (part.sum() for part in np.split(made.weights(), (5, 20)))
    assert (little / teach, unseen / teach) == (pytest.approx(MAX_LITTLE), pytest.approx(MAX_UNSEEN))


def test_a_prompt_that_was_dead_once_is_not_given_up() -> None:
    made = history()
    made.note(3, [0.0] * 8)
    assert made.weights().tolist() == [pytest.approx(0.235), 1.0, 1.0, 1.0]


def test_prompts_are_drawn_in_proportion_to_their_weights() -> None:
    made = taught()
    drawn = Counter(made.draw([0], weighted=True)[0] for _ in range(4_000))
    shares = [drawn[place] / 4_000 for place in range(4)]
    assert shares == pytest.approx(made.weights() / made.weights().sum(), abs=0.03)


def test_a_draw_has_no_prompt_twice_and_none_that_is_left_out() -> None:
    made = history()
    assert sorted(made.draw([0] * 9, excluded_rows={5}, weighted=False)) == [0, 2, 3]
    assert made.draw([0] * 2, excluded_rows=set(ROWS), weighted=True) == []


def test_a_history_read_from_a_checkpoint_draws_as_the_one_that_was_saved(tmp_path: Path) -> None:
    saved, read = taught(), history()
    saved.draw([0] * 2, weighted=True)
    saved.save(tmp_path)
    read.load(tmp_path)
    for _ in range(20):
        assert read.draw([0] * 2, weighted=True) == saved.draw([0] * 2, weighted=True)
    assert read.metrics(weighted=True) == saved.metrics(weighted=True)


def test_figures_are_of_the_prompts_that_were_seen() -> None:
    figures = taught().metrics(weighted=False)
    assert figures == {**shares(0.25, 0.5, 0.25), metric.MEAN_REWARD: pytest.approx(0.5)}
    assert history().metrics(weighted=False) == shares(0, 0, 1)


def test_figures_say_which_prompts_are_drawn() -> None:
    figures = taught().metrics(weighted=True)
    assert figures[metric.share_of_draws(metric.TEACHES)] == pytest.approx(1 / (1 + MAX_LITTLE + 0.55), abs=0.001)
    assert sum(value for name, value in figures.items() if name.startswith("prompts/draws_")) == pytest.approx(1)


def shares(*of: float) -> dict[str, float]:
    kinds = metric.TEACHES, metric.TEACH_LITTLE, metric.UNSEEN
    return {metric.share_of_prompts(kind): share for kind, share in zip(kinds, of, strict=True)}


@pytest.mark.parametrize("content", ["", "[]", '{"draws": 1, "rows": [[4, 1, 0, 0]]}'])
def test_a_checkpoint_with_no_readable_history_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(SpecError, match="can't be resumed"):
        history().load(tmp_path)
