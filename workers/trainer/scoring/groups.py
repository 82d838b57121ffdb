"""Whole groups of completions: scored by one rank for all, passed on once they are complete, and their advantages."""

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
from workers.trainer.scoring.concurrent_rewards import ConcurrentRewards
from workers.trainer.scoring.rewards import GeneratedCompletion, to_generated


def score_together(
    scorer: Callable[..., Scores],
    reward: Reward,
    completions: Sequence[Completion],
    rows: Sequence[Any],
    params: Mapping[str, Any],
    tools: Tools,
) -> Scores:
    """Score all ranks' completions on rank 0, and return this rank's part of the scores. All ranks must call this.
    `scorer` has the signature of workers.rewards.scoring.score."""
    state = PartialState()
    if state.num_processes == 1:
        return scorer(reward, completions, rows, params, tools)
    counts = gather_object([len(completions)])
    all_completions, all_rows = gather_object(list(completions)), gather_object(list(rows))
    [scores] = broadcast_object_list(
        [scorer(reward, all_completions, all_rows, params, tools) if state.is_main_process else None]
    )
    assert scores is not None  # noqa: S101  # the first rank's
    start = sum(counts[: state.process_index])
    stop = start + counts[state.process_index]
    own_failures = [failure for failure in scores.failures if start <= failure.index < stop]
    failures = [replace(failure, index=failure.index - start) for failure in own_failures]
    return Scores(scores.values[start:stop], failures, scores.notes[start:stop])


def advantages_of(rewards: Any, weights: Sequence[float], group: int, aggregation: str) -> Advantages:
    """Return advantages from a tensor of shape (completions of whole groups, components), with NaN where a component
    doesn't apply."""
    columns = [[None if math.isnan(value) else value for value in column] for column in rewards.T.tolist()]
    return advantages(columns, weights, group, aggregation)


class GroupFeed:
    """Feed of a trainer's complete groups to its early rewards, during training only."""

    def __init__(self, trainer: Any, early: ConcurrentRewards, rows: Rows, *, episodes: Any) -> None:
        """Watch the trainer's generation. `episodes`: the trainer's source of episodes, or None."""
        self._trainer = trainer
        self._early = early
        self._rows = rows
        self._episodes = episodes if isinstance(episodes, Rollouts) else None
        self._begun: set[int] = set()
        if self._episodes is not None:
            self._episodes.after_turn = self._begin_complete_groups
        elif trainer.accelerator.is_main_process:
            # A copy, because other threads decode groups while the trainer may configure its own tokenizer.
            self._reader, self._tokenizer = copy.deepcopy((trainer.processing_class, trainer._tokenizer))
            early.watch(trainer.vllm_generation.vllm_client, self._group)

    def note(self, rows: list[int]) -> None:
        """Announce this rank's rows of the next generation. All ranks must call this."""
        self._begun = set()
        if self._episodes is None:
            all_rows = gather_object(rows) if self._trainer.accelerator.num_processes > 1 else rows
            if self._trainer.accelerator.is_main_process:
                group_rows = all_rows[:: self._trainer.num_generations]
                prompts = copy.deepcopy([self._rows.by_id[row]["prompt"] for row in group_rows])
                self._early.expect(self._trainer._tokenize_prompts(prompts)[0], group_rows)

    def announce(self, prompts: list[list[int]], rows: list[int]) -> None:
        """Announce prompts that are generated ahead, while the trainer learns from the previous batch."""
        self._early.expect(prompts, rows)

    def _group(self, row: int, prompt: list[int], ids: list[list[int]]) -> tuple[list[GeneratedCompletion], list[Row]]:
        completions = to_generated(self._decode(prompt, ids), ids)
        return completions, [self._rows.by_id[row]] * len(completions)

    def _decode(self, prompt: list[int], ids: list[list[int]]) -> list[Any]:
        """Decode completions like TRL's _generate. If TRL ever differs, the group is scored again with its batch."""
        if self._rows.by_id.chat and any(
            getattr(self._tokenizer, name, None) is not None for name in ("response_template", "response_schema")
        ):
            tools = self._trainer.tools
            return [[parse_response(self._tokenizer, tokens, prefix=prompt, tools=tools)] for tokens in ids]
        texts: list[Any] = self._reader.batch_decode(ids, skip_special_tokens=True)
        return [[{"role": "assistant", "content": text}] for text in texts] if self._rows.by_id.chat else texts

    def _begin_complete_groups(self) -> None:
        """Begin to score groups whose episodes have all ended, except those that are partly on other ranks."""
        trainer, episodes = self._trainer, self._episodes
        if not trainer.model.training or episodes is None:
            return
        size, count = trainer.num_generations, len(episodes.episodes)
        first_start = -trainer.accelerator.process_index * count % size
        for start in range(first_start, count - size + 1, size):
            members = episodes.episodes[start : start + size]
            if start not in self._begun and not any(episode.is_live for episode in members):
                self._begun.add(start)
                ids = [episode.ids for episode in members]
                completions = to_generated([episode.messages for episode in members], ids)
                self._early.begin(completions, [self._rows.by_id[episode.row["row"]] for episode in members])
