"""Scoring whole groups of completions, over however many ranks they are spread: one rank scores for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

from workers.rewards import Completion, Reward, Scores, Tools, score


def score_together(
    reward: Reward, completions: Sequence[Completion], rows: Sequence[Any], params: Mapping[str, Any], tools: Tools
) -> Scores:
    """This rank's part of the scores of all completions. To be called by all ranks."""
    state = PartialState()
    if state.num_processes == 1:
        return score(reward, completions, rows, params, tools)
    counts = gather_object([len(completions)])
    everyones, their_rows = gather_object(list(completions)), gather_object(list(rows))
    told = [score(reward, everyones, their_rows, params, tools) if state.is_main_process else None]
    [scores] = broadcast_object_list(told)
    assert scores is not None  # noqa: S101  # the first rank's
    start = sum(counts[: state.process_index])
    stop = start + counts[state.process_index]
    failures = [replace(one, index=one.index - start) for one in scores.failures if start <= one.index < stop]
    return Scores(scores.values[start:stop], failures, scores.notes[start:stop])
