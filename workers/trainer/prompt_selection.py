"""A trainer that selects its prompts: it replaces groups without spread, and draws prompts by difficulty.

All ranks know every group's rewards, draw the same prompts and generate equal shares of them, so that no rank is idle
while others work. TRL sees one batch with its rewards: everything after generation is TRL's own.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch

from workers.contract.run import prompts as names
from workers.contract.run.prompts import REPLACED, PromptsSpec
from workers.trainer.episodes.episode import Episode
from workers.trainer.episodes.rollout import Rollouts
from workers.trainer.recording.samples import Sample
from workers.trainer.rollouts.prompt_history import PromptHistory
from workers.trainer.rollouts.prompt_mix import sources_of
from workers.trainer.scoring.groups import advantages_of
from workers.trainer.trainer import WatchedTrainer

LENGTH_METRICS = tuple(
    f"completions/{name}"
    for name in (
        *("mean_length", "min_length", "max_length", "clipped_ratio"),
        *("mean_terminated_length", "min_terminated_length", "max_terminated_length"),
    )
)
MAX_EXPECTED_MISSING = 0.5
"""Maximum expected number of groups without spread that remain after the last round."""


@dataclass(frozen=True)
class Member:
    """A completion of a group, with what TRL keeps for it."""

    prompt_ids: list[int]
    ids: list[int]
    logprobs: list[Any] | None
    completion: Any
    mask: list[int] | None = None
    """1 for each token that the model generated, else 0; None if it generated all."""
    episode: Episode | None = None
    policy: int | None = None
    """Step whose weights generated it, if batches are generated ahead."""


@dataclass(frozen=True)
class RankBatch:
    """This rank's part of a batch. TRL uses the same lists of inputs and prompts, so replacing an item changes what is
    trained on."""

    inputs: list[dict[str, Any]]
    prompts: list[Any]
    members: list[Member]

    def replace(self, index: int, example: Mapping[str, Any], member: Member) -> None:
        self.inputs[index], self.prompts[index], self.members[index] = dict(example), example["prompt"], member


@dataclass(frozen=True)
class FreshGroup:
    """Group generated in an extra round, with all its members on every rank."""

    example: dict[str, Any]
    members: list[Member]
    rewards: torch.Tensor
    """Rewards with shape (members, components)."""
    scores: list[float]
    """Scores whose spread decides whether the group is used, without missing ones."""
    has_spread: bool

    @property
    def tokens(self) -> int:
        return sum(len(member.ids) for member in self.members)


class PromptSelectingTrainer(WatchedTrainer):
    """A trainer that replaces groups without spread (dynamic sampling), and draws prompts by difficulty."""

    def __init__(self, *, prompts: PromptsSpec, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._spec = prompts
        self._history = PromptHistory(
            list(self.train_dataset["row"]),
            seed=self.args.seed,
            least_weight=prompts.least_weight,
            mix=self._mix or (1.0,),
        )
        self._inputs: list[dict[str, Any]] | None = None
        self._selected_rewards: torch.Tensor | None = None
        self._unused_samples: list[Sample] = []

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        if self._spec.by_difficulty:
            rows = self._of_all_ranks([example["row"] for example in inputs])[:: self.num_generations]
            inputs = self._own_share(self._history.draw(sources_of(rows), weighted=True))
        self._inputs = list(inputs)  # fresh groups are put into this very list
        try:
            output = super()._generate_and_score_completions(self._inputs)
        finally:
            self._inputs = self._selected_rewards = None
        step = self.state.global_step + 1
        self._samples.write(self._unused_samples, group=self.num_generations, step=step, mode=REPLACED)
        return output

    def _generate(self, prompts: Any) -> Any:
        if self._inputs is None:
            return super()._generate(prompts)
        logged = {name: len(values) for name, values in self._metrics["train"].items()}
        members, shared_results = self._generate_members(prompts)
        self._select(RankBatch(self._inputs, prompts, members), logged)
        missing = any(member.logprobs is None for member in members)
        logprobs = None if missing else [member.logprobs for member in members]
        masks = None if any(member.mask is None for member in members) else [member.mask for member in members]
        self._policy_steps = [member.policy for member in members]
        ids, completions = [member.ids for member in members], [member.completion for member in members]
        return [member.prompt_ids for member in members], ids, masks, completions, logprobs, *shared_results

    def _generate_members(self, prompts: Any) -> tuple[list[Member], list[Any]]:
        """Generate completions; return them, and TRL's results that concern all of them."""
        prompt_ids, ids, masks, completions, logprobs, *shared_results = super()._generate(prompts)
        missing = [None] * len(ids)
        episodes = missing if self._episodes is None else self._episodes.episodes
        columns = (prompt_ids, ids, logprobs or missing, completions, masks or missing, episodes, self._policy_steps)
        return [Member(*values) for values in zip(*columns, strict=True)], shared_results

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        if self._selected_rewards is None:
            return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self._episodes is not None:
            completions = [episode.messages for episode in self._episodes.episodes]
        self._scored = completions, completion_ids_list, self._selected_rewards
        return self._selected_rewards

    # --- dynamic sampling -------------------------------------------------------------------------------------

    def _select(self, batch: RankBatch, logged_counts: Mapping[str, int]) -> None:
        """Score the batch, and replace groups without spread with fresh ones. `logged_counts`: how many values each
        metric had before the batch was generated."""
        rewards = super()._calculate_rewards(
            batch.inputs,
            batch.prompts,
            [member.completion for member in batch.members],
            [member.ids for member in batch.members],
        )
        rows = self._of_all_ranks([example["row"] for example in batch.inputs])[:: self.num_generations]
        spreads, scores = self._spreads(rewards)
        for row, group_scores in zip(rows, scores, strict=True):
            self._history.note(row, group_scores)
        dead_groups = [group for group, has_spread in enumerate(spreads) if not has_spread]
        chosen, unused_groups, rounds = self._fresh_groups(dead_groups, rows)
        self._unused_samples = self._samples_of(batch, rewards, chosen, unused_groups)
        self._replace_groups(batch, rewards, chosen)
        self._selected_rewards = rewards
        for name, values in self._pending_metrics.items():
            if name.startswith("time/"):
                values[:] = [sum(values)]  # a reward's time over all rounds, of which TRL would take the mean
        if rounds:
            self._log_lengths_again(logged_counts, batch.members)
        live_rows = {row for row, has_spread in zip(rows, spreads, strict=True) if has_spread}
        self._log(
            {
                names.DRAWN_WITHOUT: len(dead_groups) / len(rows),
                names.WITHOUT_SPREAD: (len(dead_groups) - len(chosen)) / len(rows),
                names.EFFECTIVE: len(live_rows | {fresh.example["row"] for fresh in chosen.values()}),
                names.EXTRA_ROUNDS: rounds,
                names.EXTRA_TOKENS: sum(fresh.tokens for fresh in (*chosen.values(), *unused_groups)),
                **self._history.metrics(weighted=self._spec.by_difficulty),
            }
        )

    def _replace_groups(self, batch: RankBatch, rewards: torch.Tensor, chosen: Mapping[int, FreshGroup]) -> None:
        for index, group, member in self._positions(batch):
            if group in chosen:
                batch.replace(index, chosen[group].example, chosen[group].members[member])
        for group, fresh in chosen.items():
            rewards[group * self.num_generations :][: self.num_generations] = fresh.rewards
        if isinstance(self._episodes, Rollouts):
            self._episodes.episodes = [member.episode for member in batch.members if member.episode is not None]

    def _positions(self, batch: RankBatch) -> Iterator[tuple[int, int, int]]:
        """Yield (index in this rank's part, group number over all ranks, index in the group) for each completion."""
        start = self.accelerator.process_index * len(batch.members)
        for index in range(len(batch.members)):
            yield index, *divmod(start + index, self.num_generations)

    def _fresh_groups(
        self, dead_groups: Sequence[int], rows: Sequence[int]
    ) -> tuple[dict[int, FreshGroup], list[FreshGroup], int]:
        """Generate fresh groups to replace `dead_groups`, in up to `extra_rounds` rounds. Return a map from dead group
        to fresh group with spread, the unused fresh groups, and the number of rounds."""
        tried, total, live = set(rows), len(rows), len(rows) - len(dead_groups)
        chosen: dict[int, FreshGroup] = {}
        unused_groups: list[FreshGroup] = []
        for rounds in range(self._spec.extra_rounds):
            missing = [group for group in dead_groups if group not in chosen]
            count = self._round_size(len(missing), live / total, len(rows), self._spec.extra_rounds - rounds)
            sources = sources_of([rows[group] for group in islice(cycle(missing), count)])
            indexes = self._history.draw(sources, excluded_rows=tried, weighted=self._spec.by_difficulty)
            indexes = indexes[: len(indexes) // self._unit * self._unit]
            if not indexes:
                return chosen, unused_groups, rounds
            with self._lanes.extra_round():
                groups = self._generate_groups(indexes)
            tried |= {group.example["row"] for group in groups}
            usable = [group for group in groups if group.has_spread]
            total, live = total + len(groups), live + len(usable)
            replaced = _same_source(missing, rows, usable)
            chosen |= replaced
            used = set(map(id, replaced.values()))
            unused = [group for group in groups if id(group) not in used]
            unused_groups += sorted(unused, key=lambda group: not group.has_spread)
        return chosen, unused_groups, self._spec.extra_rounds

    @property
    def _unit(self) -> int:
        """The smallest number of groups that gives every rank an equal share of the completions."""
        ranks = int(self.accelerator.num_processes)
        return ranks // math.gcd(int(self.num_generations), ranks)

    def _round_size(self, missing: int, live_share: float, limit: int, rounds: int) -> int:
        """Return how many groups to generate to get `missing` ones with spread, if the share `live_share` of groups has
        spread. This is `missing`, so that no group goes unused, or more if the remaining rounds would hardly suffice;
        it is at most a batch, which is known to fit into memory."""
        needed = missing
        if missing * (1 - live_share) ** rounds > MAX_EXPECTED_MISSING:
            needed = math.ceil(missing / live_share) if live_share else limit
        return min(math.ceil(needed / self._unit) * self._unit, limit)

    def _generate_groups(self, indexes: Sequence[int]) -> list[FreshGroup]:
        own_examples = self._own_share(indexes)
        prompts = [example["prompt"] for example in own_examples]
        self._announce_rows([example["row"] for example in own_examples])
        completions, _ = self._generate_members(prompts)
        rewards = super()._calculate_rewards(
            own_examples, prompts, [member.completion for member in completions], [member.ids for member in completions]
        )
        members = self._of_all_ranks(completions)
        size = self.num_generations
        spreads, scores = self._spreads(rewards)
        groups = [
            FreshGroup(
                self.train_dataset[index],
                members[number * size : (number + 1) * size],
                rewards[number * size : (number + 1) * size],
                scores[number],
                spreads[number],
            )
            for number, index in enumerate(indexes)
        ]
        for group in groups:
            self._history.note(group.example["row"], group.scores)
        return groups

    def _own_share(self, indexes: Sequence[int]) -> list[dict[str, Any]]:
        """Return this rank's inputs for a batch of these prompts, distributed as by TRL's sampler."""
        slots = [index for index in indexes for _ in range(self.num_generations)]
        share = len(slots) // self.accelerator.num_processes
        start = self.accelerator.process_index * share
        examples = {index: self.train_dataset[index] for index in set(slots[start : start + share])}
        return [dict(examples[index]) for index in slots[start : start + share]]

    def _spreads(self, rewards: torch.Tensor) -> tuple[list[bool], list[list[float]]]:
        weights = self.reward_weights.tolist()
        if self._spec.spread_in:
            rewards, weights = rewards[:, [self.reward_func_names.index(self._spec.spread_in)]], [1.0]
        size = self.num_generations
        result = advantages_of(rewards, weights, size, self.multi_objective_aggregation)
        groups = [result.totals[start : start + size] for start in range(0, len(rewards), size)]
        scores = [[score for score in group if score is not None] for group in groups]
        return [not zero for zero in result.zero_spread], scores

    # --- records ------------------------------------------------------------------------------------------------

    def _samples_of(
        self,
        batch: RankBatch,
        rewards: torch.Tensor,
        chosen: Mapping[int, FreshGroup],
        unused_groups: Sequence[FreshGroup],
    ) -> list[Sample]:
        """Collect samples of the groups that aren't trained on: replaced ones, and unused fresh ones."""
        replaced_samples = self._of_all_ranks(
            [
                self._sample(
                    batch.inputs[index]["row"], batch.members[index], rewards[group * self.num_generations + member]
                )
                for index, group, member in self._positions(batch)
                if group in chosen
            ]
        )
        fresh_samples = [
            self._sample(group.example["row"], member, member_rewards)
            for group in unused_groups
            for member, member_rewards in zip(group.members, group.rewards, strict=True)
        ]
        return [*replaced_samples, *fresh_samples]

    def _sample(self, row: int, member: Member, rewards: torch.Tensor) -> Sample:
        completion = member.episode.messages if member.episode else member.completion
        return self._as_sample(row, completion, member.ids, rewards.tolist(), 0.0, member.episode, member.policy)

    def _log(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._metrics["train"][name].append(value)

    def _log_lengths_again(self, logged: Mapping[str, int], members: Sequence[Member]) -> None:
        """Replace the length metrics of all generated completions with those of the batch that is trained on."""
        metrics = self._metrics["train"]
        for name in metrics.keys() - {"num_tokens"}:  # a running total
            del metrics[name][logged.get(name, 0) :]
            if not metrics[name]:
                del metrics[name]  # TRL takes the mean of each
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        own_lengths = [
            (len(member.ids) if member.mask is None else sum(member.mask), member.ids[-1] not in ends)
            for member in members
        ]
        completions = self._of_all_ranks(own_lengths)
        lengths = [length for length, _ in completions]
        ended = [length for length, truncated in completions if not truncated] or [0]
        values = (
            *(sum(lengths) / len(lengths), min(lengths), max(lengths)),
            sum(truncated for _, truncated in completions) / len(completions),
            *(sum(ended) / len(ended), min(ended), max(ended)),
        )
        self._log(dict(zip(LENGTH_METRICS, map(float, values), strict=True)))
        if self._episodes is not None:
            self._metrics_of_episodes()

    # --- in a checkpoint --------------------------------------------------------------------------------------

    def train(self, resume_from_checkpoint: Any = None, **arguments: Any) -> Any:
        if resume_from_checkpoint:
            self._history.load(Path(resume_from_checkpoint))
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **arguments)

    def _save_whole(self, model: Any, trial: Any) -> None:
        super()._save_whole(model, trial)
        if self.accelerator.is_main_process:
            self._history.save(Path(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}"))


def _same_source(missing: Sequence[int], rows: Sequence[int], usable: Sequence[FreshGroup]) -> dict[int, FreshGroup]:
    """Assign fresh groups to missing ones of the same source. `rows`: the row of each group of the batch."""
    places: dict[int, list[int]] = defaultdict(list)
    for source, group in zip(sources_of([rows[group] for group in missing]), missing, strict=True):
        places[source].append(group)
    fresh_sources = sources_of([fresh.example["row"] for fresh in usable])
    return {places[source].pop(0): fresh for source, fresh in zip(fresh_sources, usable, strict=True) if places[source]}
