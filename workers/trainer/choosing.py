"""The trainer of a run that chooses its prompts: groups without spread are replaced, prompts drawn by difficulty.

All ranks know every group's rewards, draw the same prompts and generate equal shares of them, so that no rank waits for
another that has nothing to do. TRL sees one batch with its rewards: everything after generation is TRL's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from workers.contract.run import prompts as metric
from workers.contract.run.prompts import REPLACED, PromptsSpec
from workers.trainer.episodes.episode import Episode
from workers.trainer.episodes.rollout import Rollouts
from workers.trainer.recording.samples import Sample
from workers.trainer.rollouts.prompts import PromptHistory
from workers.trainer.scoring.groups import advantages_of
from workers.trainer.trainer import WatchedTrainer

LENGTHS = tuple(
    f"completions/{name}"
    for name in (
        *("mean_length", "min_length", "max_length", "clipped_ratio"),
        *("mean_terminated_length", "min_terminated_length", "max_terminated_length"),
    )
)
"""What TRL logs of each generation."""
MISSED = 0.5
"""Groups without spread that may be expected to be left after the last round."""


@dataclass(frozen=True)
class Member:
    """A completion with what TRL keeps of it."""

    prompt_ids: list[int]
    ids: list[int]
    logprobs: list[Any] | None
    completion: Any
    own: list[int] | None = None
    """Which tokens the model wrote; None: all."""
    episode: Episode | None = None
    policy: int | None = None
    """The step whose weights wrote it, where batches are generated ahead."""


@dataclass(frozen=True)
class Dealt:
    """This rank's part of a batch. TRL holds the lists of inputs and prompts: what is put into them is trained on."""

    inputs: list[dict[str, Any]]
    prompts: list[Any]
    members: list[Member]

    def put(self, at: int, example: Mapping[str, Any], member: Member) -> None:
        self.inputs[at], self.prompts[at], self.members[at] = dict(example), example["prompt"], member


@dataclass(frozen=True)
class Fresh:
    """A group that was generated beside the batch; all ranks have it whole."""

    example: dict[str, Any]
    """Of the training set."""
    members: list[Member]
    rewards: torch.Tensor
    """[member, component]"""
    scores: list[float]
    """What its spread is looked for in, where there is a score."""
    spread: bool

    @property
    def tokens(self) -> int:
        return sum(len(member.ids) for member in self.members)


class ChoosingTrainer(WatchedTrainer):
    def __init__(self, *, prompts: PromptsSpec, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._choice = prompts
        self._history = PromptHistory(
            list(self.train_dataset["row"]), seed=self.args.seed, least_weight=prompts.least_weight
        )
        self._inputs: list[dict[str, Any]] | None = None
        self._decided: torch.Tensor | None = None
        self._left_out: list[Sample] = []

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        if self._choice.by_difficulty:
            count = len(inputs) * self.accelerator.num_processes // self.num_generations
            inputs = self._own_part(self._history.draw(count, weighted=True))
        self._inputs = list(inputs)  # replaced groups are put into this very list
        try:
            output = super()._generate_and_score_completions(self._inputs)
        finally:
            self._inputs = self._decided = None
        self._samples.write(self._left_out, group=self.num_generations, step=self.state.global_step + 1, mode=REPLACED)
        return output

    def _generate(self, prompts: Any) -> Any:
        if self._inputs is None:
            return super()._generate(prompts)
        logged = self._logged()
        members, others = self._members(prompts)
        self._choose(Dealt(self._inputs, prompts, members), logged)
        told = None if any(member.logprobs is None for member in members) else [one.logprobs for one in members]
        own = None if any(member.own is None for member in members) else [one.own for one in members]
        self._sampled_by = [member.policy for member in members]
        ids, completions = [member.ids for member in members], [member.completion for member in members]
        return [member.prompt_ids for member in members], ids, own, completions, told, *others

    def _members(self, prompts: Any) -> tuple[list[Member], list[Any]]:
        """What TRL's generation gives: of each completion, and of all together."""
        prompt_ids, ids, own, completions, logprobs, *others = super()._generate(prompts)
        nothing = [None] * len(ids)
        episodes = nothing if self._episodes is None else self._episodes.episodes
        columns = (prompt_ids, ids, logprobs or nothing, completions, own or nothing, episodes, self._sampled_by)
        return [Member(*each) for each in zip(*columns, strict=True)], others

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        if self._decided is None:
            return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self._episodes is not None:
            completions = [episode.messages for episode in self._episodes.episodes]
        self._scored = completions, completion_ids_list, self._decided
        return self._decided

    # --- dynamic sampling -------------------------------------------------------------------------------------

    def _choose(self, dealt: Dealt, logged: Mapping[str, int]) -> None:
        """Score the batch, and put fresh groups in the place of those without spread. `logged`: before its
        generation."""
        rewards = super()._calculate_rewards(
            dealt.inputs,
            dealt.prompts,
            [member.completion for member in dealt.members],
            [member.ids for member in dealt.members],
        )
        rows = self._of_all_ranks([example["row"] for example in dealt.inputs])[:: self.num_generations]
        spreads, scores = self._spreads(rewards)
        for row, of_group in zip(rows, scores, strict=True):
            self._history.note(row, of_group)
        dead = [place for place, spread in enumerate(spreads) if not spread]
        chosen, left_out, rounds = self._fresh(dead, rows)
        self._left_out = self._samples_of(dealt, rewards, chosen, left_out)
        self._put(dealt, rewards, chosen)
        self._decided = rewards
        self._add_up_times()
        if rounds:
            self._restate(logged, dealt.members)
        live = {row for row, spread in zip(rows, spreads, strict=True) if spread}
        self._log(
            {
                metric.DRAWN_WITHOUT: len(dead) / len(rows),
                metric.WITHOUT_SPREAD: (len(dead) - len(chosen)) / len(rows),
                metric.EFFECTIVE: len(live | {fresh.example["row"] for fresh in chosen.values()}),
                metric.EXTRA_ROUNDS: rounds,
                metric.EXTRA_TOKENS: sum(one.tokens for one in (*chosen.values(), *left_out)),
                **self._history.metrics(weighted=self._choice.by_difficulty),
            }
        )

    def _put(self, dealt: Dealt, rewards: torch.Tensor, chosen: Mapping[int, Fresh]) -> None:
        """Each fresh group into its place, on the ranks that have it."""
        for at, number, member in self._places(dealt):
            if number in chosen:
                dealt.put(at, chosen[number].example, chosen[number].members[member])
        for number, fresh in chosen.items():
            rewards[number * self.num_generations :][: self.num_generations] = fresh.rewards
        if isinstance(self._episodes, Rollouts):
            self._episodes.episodes = [member.episode for member in dealt.members if member.episode is not None]

    def _places(self, dealt: Dealt) -> Iterator[tuple[int, int, int]]:
        """(place in this rank's part, number of its group among all ranks', its place in the group)"""
        start = self.accelerator.process_index * len(dealt.members)
        for at in range(len(dealt.members)):
            yield at, *divmod(start + at, self.num_generations)

    def _fresh(self, dead: Sequence[int], rows: Sequence[int]) -> tuple[dict[int, Fresh], list[Fresh], int]:
        """Groups with spread for the places of the dead ones, as many as the rounds give; the fresh groups that aren't
        used; the number of rounds."""
        tried, seen, live = set(rows), len(rows), len(rows) - len(dead)
        chosen: dict[int, Fresh] = {}
        left_out: list[Fresh] = []
        for done in range(self._choice.extra_rounds):
            still = [place for place in dead if place not in chosen]
            count = self._round(len(still), live / seen, len(rows), self._choice.extra_rounds - done)
            places = self._history.draw(count, without=tried, weighted=self._choice.by_difficulty) if still else []
            places = places[: len(places) // self._unit * self._unit]
            if not places:
                return chosen, left_out, done
            with self._lanes.extra_round():
                groups = self._generate_fresh(places)
            tried |= {one.example["row"] for one in groups}
            usable = [one for one in groups if one.spread]
            seen, live = seen + len(groups), live + len(usable)
            chosen |= zip(still, usable, strict=False)
            left_out += [*usable[len(still) :], *(one for one in groups if not one.spread)]
        return chosen, left_out, self._choice.extra_rounds

    @property
    def _unit(self) -> int:
        """Groups come in this many, so that every rank has an equal share of the completions."""
        ranks = int(self.accelerator.num_processes)
        return ranks // math.gcd(int(self.num_generations), ranks)

    def _round(self, wanted: int, live: float, most: int, rounds: int) -> int:
        """The number of groups to generate for `wanted` with spread, if the share `live` of them has some: no more than
        are wanted, so that none is left over, unless the rounds that are left would hardly suffice. At most a batch,
        which the memory is known to hold."""
        needed = wanted
        if wanted * (1 - live) ** rounds > MISSED:
            needed = math.ceil(wanted / live) if live else most
        return min(math.ceil(needed / self._unit) * self._unit, most)

    def _generate_fresh(self, places: Sequence[int]) -> list[Fresh]:
        own = self._own_part(places)
        prompts = [example["prompt"] for example in own]
        self._note([example["row"] for example in own])
        made, _ = self._members(prompts)
        rewards = super()._calculate_rewards(
            own, prompts, [member.completion for member in made], [member.ids for member in made]
        )
        members = self._of_all_ranks(made)
        group = self.num_generations
        spreads, scores = self._spreads(rewards)
        groups = [
            Fresh(
                self.train_dataset[place],
                members[number * group : (number + 1) * group],
                rewards[number * group : (number + 1) * group],
                scores[number],
                spreads[number],
            )
            for number, place in enumerate(places)
        ]
        for one in groups:
            self._history.note(one.example["row"], one.scores)
        return groups

    def _own_part(self, places: Sequence[int]) -> list[dict[str, Any]]:
        """This rank's inputs of a batch of these prompts, as TRL's sampler deals them."""
        slots = [place for place in places for _ in range(self.num_generations)]
        share = len(slots) // self.accelerator.num_processes
        start = self.accelerator.process_index * share
        examples = {place: self.train_dataset[place] for place in set(slots[start : start + share])}
        return [dict(examples[place]) for place in slots[start : start + share]]

    def _spreads(self, rewards: torch.Tensor) -> tuple[list[bool], list[list[float]]]:
        """Of each group, whether what counts has spread, and its scores there."""
        weights = self.reward_weights.tolist()
        if self._choice.spread_in:
            rewards, weights = rewards[:, [self.reward_func_names.index(self._choice.spread_in)]], [1.0]
        found = advantages_of(rewards, weights, self.num_generations, self.multi_objective_aggregation)
        parts = [found.totals[at : at + self.num_generations] for at in range(0, len(rewards), self.num_generations)]
        return [not zero for zero in found.zero_spread], [[one for one in part if one is not None] for part in parts]

    # --- what is told -----------------------------------------------------------------------------------------

    def _samples_of(
        self, dealt: Dealt, rewards: torch.Tensor, chosen: Mapping[int, Fresh], left_out: Sequence[Fresh]
    ) -> list[Sample]:
        """The groups that nothing is trained on: those whose places others take, and fresh ones beyond need."""
        replaced = self._of_all_ranks(
            [
                self._sample(
                    dealt.inputs[at]["row"], dealt.members[at], rewards[number * self.num_generations + member]
                )
                for at, number, member in self._places(dealt)
                if number in chosen
            ]
        )
        fresh = [
            self._sample(group.example["row"], member, of_member)
            for group in left_out
            for member, of_member in zip(group.members, group.rewards, strict=True)
        ]
        return [*replaced, *fresh]

    def _sample(self, row: int, member: Member, rewards: torch.Tensor) -> Sample:
        completion = member.episode.messages if member.episode else member.completion
        return self._as_sample(row, completion, member.ids, rewards.tolist(), 0.0, member.episode, member.policy)

    def _log(self, figures: dict[str, float]) -> None:
        for name, value in figures.items():
            self._metrics["train"][name].append(value)

    def _logged(self) -> dict[str, int]:
        return {name: len(values) for name, values in self._metrics["train"].items()}

    def _restate(self, logged: Mapping[str, int], members: Sequence[Member]) -> None:
        """The figures of the generation, of the batch that is trained on in place of all that was generated."""
        metrics = self._metrics["train"]
        for name in metrics.keys() - {"num_tokens"}:  # a running total
            del metrics[name][logged.get(name, 0) :]
            if not metrics[name]:
                del metrics[name]  # TRL takes the mean of each
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        lengths_of = [(len(one.ids) if one.own is None else sum(one.own), one.ids[-1] not in ends) for one in members]
        told = self._of_all_ranks(lengths_of)
        lengths, ended = [length for length, _ in told], [length for length, cut in told if not cut] or [0]
        figures = (
            *(sum(lengths) / len(lengths), min(lengths), max(lengths), sum(cut for _, cut in told) / len(told)),
            *(sum(ended) / len(ended), min(ended), max(ended)),
        )
        self._log(dict(zip(LENGTHS, map(float, figures), strict=True)))
        if self._episodes is not None:
            self._metrics_of_episodes()

    def _add_up_times(self) -> None:
        """A reward's time is that of all rounds; TRL would take the mean."""
        for name, values in self._pending_metrics.items():
            if name.startswith("time/"):
                values[:] = [sum(values)]

    # --- in a checkpoint --------------------------------------------------------------------------------------

    def train(self, resume_from_checkpoint: Any = None, **arguments: Any) -> Any:
        if resume_from_checkpoint:
            self._history.load(Path(resume_from_checkpoint))
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **arguments)

    def _save_whole(self, model: Any, trial: Any) -> None:
        super()._save_whole(model, trial)
        if self.accelerator.is_main_process:
            self._history.save(Path(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}"))
