"""Whole groups of completions: scored by one rank, over however many they are spread, known when they are complete, and
what each has to teach."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from trl.trainer.grpo_trainer import parse_response

from workers.rewards.advantages import Advantages, advantages
from workers.rewards.reward import Completion, Reward, Row, Scores
from workers.rewards.tools import Tools
from workers.trainer.data import Rows
from workers.trainer.episodes.rollout import Rollouts
from workers.trainer.rollouts.beside import Beside
from workers.trainer.scoring.rewards import Generated, generated


def score_together(
    scorer: Callable[..., Scores],
    reward: Reward,
    completions: Sequence[Completion],
    rows: Sequence[Any],
    params: Mapping[str, Any],
    tools: Tools,
) -> Scores:
    """This rank's part of the scores of all completions, which `scorer` gives as workers.rewards.score does. To be
    called by all ranks."""
    state = PartialState()
    if state.num_processes == 1:
        return scorer(reward, completions, rows, params, tools)
    counts = gather_object([len(completions)])
    everyones, their_rows = gather_object(list(completions)), gather_object(list(rows))
    told = [scorer(reward, everyones, their_rows, params, tools) if state.is_main_process else None]
    [scores] = broadcast_object_list(told)
    assert scores is not None  # noqa: S101  # the first rank's
    start = sum(counts[: state.process_index])
    stop = start + counts[state.process_index]
    failures = [replace(one, index=one.index - start) for one in scores.failures if start <= one.index < stop]
    return Scores(scores.values[start:stop], failures, scores.notes[start:stop])


def advantages_of(rewards: Any, weights: Sequence[float], group: int, aggregation: str) -> Advantages:
    """`rewards`: a tensor of whole groups, [completion, component], NaN where a component doesn't apply."""
    columns = [[None if math.isnan(one) else one for one in column] for column in rewards.T.tolist()]
    return advantages(columns, weights, group, aggregation)


class GroupsOf:
    """Gives a trainer's groups to `beside`, in training only."""

    def __init__(self, trainer: Any, beside: Beside, rows: Rows, *, episodes: Any) -> None:
        """`episodes`: the trainer's, if its completions have several turns."""
        self._trainer = trainer
        self._beside = beside
        self._rows = rows
        self._episodes = episodes if isinstance(episodes, Rollouts) else None
        self._begun: set[int] = set()
        # Groups are read in other threads while the trainer's may set up its tokenizer, which refuses both at once.
        self._reader, self._tokenizer = copy.deepcopy((trainer.processing_class, trainer._tokenizer))
        if self._episodes is not None:
            self._episodes.after_turn = self._look
        elif trainer.accelerator.is_main_process:
            beside.watch(trainer.vllm_generation.vllm_client, self._group)

    def note(self, rows: list[int]) -> None:
        """This rank's rows that are generated for next. To be called by all ranks."""
        self._begun = set()
        if self._episodes is None:
            everyones = gather_object(rows) if self._trainer.accelerator.num_processes > 1 else rows
            if self._trainer.accelerator.is_main_process:
                self._know(everyones[:: self._trainer.num_generations])

    def come(self, prompts: list[list[int]], rows: list[int]) -> None:
        """These are generated meanwhile: their groups are scored while the trainer learns from the batch before."""
        self._beside.know(prompts, rows)

    def _know(self, rows: list[int]) -> None:
        prompts = copy.deepcopy([self._rows.by_id[row]["prompt"] for row in rows])
        self._beside.know(self._trainer._tokenize_prompts(prompts)[0], rows)

    def _group(self, row: int, prompt: list[int], ids: list[list[int]]) -> tuple[list[Generated], list[Row]]:
        made = generated(self._decoded(prompt, ids), ids)
        return made, [self._rows.by_id[row]] * len(made)

    def _decoded(self, prompt: list[int], ids: list[list[int]]) -> list[Any]:
        """As TRL's _generate has them. Should it do otherwise one day, the group is scored again with its batch."""
        if self._rows.by_id.chat and any(
            getattr(self._tokenizer, name, None) is not None for name in ("response_template", "response_schema")
        ):
            return [[parse_response(self._tokenizer, one, prefix=prompt, tools=self._trainer.tools)] for one in ids]
        texts: list[Any] = self._reader.batch_decode(ids, skip_special_tokens=True)
        return [[{"role": "assistant", "content": text}] for text in texts] if self._rows.by_id.chat else texts

    def _look(self) -> None:
        """Groups whose episodes have all ended since; those that other ranks have a part of are left to the batch."""
        trainer, episodes = self._trainer, self._episodes
        if not trainer.model.training or episodes is None:
            return
        size, count = trainer.num_generations, len(episodes.episodes)
        first = -trainer.accelerator.process_index * count % size
        for start in range(first, count - size + 1, size):
            members = episodes.episodes[start : start + size]
            if start not in self._begun and not any(one.live for one in members):
                self._begun.add(start)
                made = generated([one.messages for one in members], [one.ids for one in members])
                self._beside.begin(made, [self._rows.by_id[one.row["row"]] for one in members])
