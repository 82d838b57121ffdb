"""A GRPOTrainer that also records completions, measures the ratio and step times, and resumes exactly.

Nothing here draws a random number or changes a tensor that TRL uses, so training is identical to that of a plain
GRPOTrainer with the same arguments and attention kernels; `bench overhead` proves it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from workers.contract.run import evaluation
from workers.contract.run.episodes import UNSCORED_ENDS
from workers.contract.run.row_names import rows_metric
from workers.contract.wire.names import StepPart
from workers.trainer import rollout_state
from workers.trainer.activity import RankActivity
from workers.trainer.configuration import hardware
from workers.trainer.configuration.spec import SpecError
from workers.trainer.data import completion_text, json_copy, turns
from workers.trainer.episodes import figures, templates
from workers.trainer.episodes.crediting import TurnCredit, with_supplied_advantages
from workers.trainer.episodes.episode import Episode, Source
from workers.trainer.episodes.rollout import EVALUATION_STEP
from workers.trainer.recording.samples import Sample, SampleFile, end_of
from workers.trainer.recording.timing import StepTimes
from workers.trainer.recording.waterfall import Lanes
from workers.trainer.rollouts import correction
from workers.trainer.rollouts.async_generation import NextBatches
from workers.trainer.rollouts.prompt_mix import MixedSampler
from workers.trainer.scoring.failures import Failures
from workers.trainer.scoring.groups import GroupFeed, advantages_of
from workers.trainer.scoring.reward_models import drop_unusable
from workers.trainer.scoring.rewards import RewardSet

T = TypeVar("T")


class WatchedTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL has no types here
    def __init__(
        self,
        *,
        samples: SampleFile,
        failures: Failures,
        reward_names: Sequence[str],
        trained_on: int,
        activity: RankActivity,
        lanes: Lanes,
        models: Mapping[int, Callable[[int], bool] | None] = MappingProxyType({}),
        best_metric: str = "",
        only_samples: bool = False,
        ahead: bool = False,
        episodes: Source | None = None,
        turn_credit: TurnCredit | None = None,
        groups: Callable[[Any], GroupFeed | None] = lambda trainer: None,
        mix: Sequence[float] = (),
        **arguments: Any,
    ) -> None:
        """Create the trainer. `trained_on`: the number of rewards that are trained on; the others are computed only in
        evaluations. `models`: the indexes of rewards that are models, each with
        a function that says to which rows it applies, or None for all. `best_metric`: the metric whose best checkpoint
        is never deleted. `only_samples`: whether evaluations only generate and score, without a loss. `ahead`: whether
        vLLM servers generate the next batch during training. `episodes`: the source of completions with several turns.
        `turn_credit`: the rewards that score each turn. `groups` is called with the trainer once it can generate.
        `mix`: the weight of each source, if there are several."""
        self._mix = mix
        self.times = StepTimes(finish=_finish, doing=activity.doing, record=lanes.record)
        self._activity = activity
        self._lanes = lanes
        self._samples = samples
        self._failures = failures
        self._models = models
        self._best_metric = best_metric
        self._only_samples = only_samples
        self._epochs_done = 0
        self._scored: tuple[list[Any], list[list[int]], torch.Tensor] | None = None
        self._policy_logps: torch.Tensor | None = None
        self._episodes = episodes
        self._turn_credit = turn_credit
        super().__init__(**arguments, rollout_func=episodes)
        # TRL names a model reward after the model, so two rewards with the same model would be merged.
        self.reward_func_names = self._reward_names = list(reward_names)
        self._trained_rewards, self._eval_only_rewards = (
            RewardSet.of(self, 0, trained_on),
            RewardSet.of(self, trained_on),
        )
        self._trained_rewards.install_in(self)
        for model in (self.model, self.ref_model):
            if model is not None:
                hardware.restore_rotary_frequencies(model)
        if self.use_vllm:
            generation = self.vllm_generation
            generation.sync_weights = self.times.timed(StepPart.WEIGHT_SYNC, generation.sync_weights)
            lanes.watch(generation)
            if only_samples and hasattr(
                generation, "logprobs"
            ):  # vLLM is in the trainer; for a server they cost little
                correction.disable_logprobs(generation)
        self._groups = groups(self)
        announce = self._groups.announce if self._groups else lambda prompts, rows: None
        self._ahead = NextBatches(self, announce) if ahead else None
        self._policy_steps: list[int | None] = []

    # --- where a step's time goes -------------------------------------------------------------------------------

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        with self.times.step():
            return super().training_step(*args, **kwargs)

    def _prepare_inputs(self, *args: Any, **kwargs: Any) -> Any:
        with self.times.within(StepPart.PREPARING):
            return super()._prepare_inputs(*args, **kwargs)

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        parsing = nullcontext() if self._episodes is None else templates.without_call_parsing(self._tokenizer)
        with self.times.within(StepPart.GENERATION), parsing:
            generated = super()._generate(*args, **kwargs)
        self._policy_steps = [self._ahead.policy_step() if self._ahead else None] * len(generated[1])
        if self._episodes is not None:
            self._metrics_of_episodes()
        return generated

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        with self._activity.doing(StepPart.EVALUATION), self._lanes.within(StepPart.EVALUATION):
            return super().evaluate(*args, **kwargs)

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._only_samples:
            return super().prediction_step(model, inputs, *args, **kwargs)
        self._prepare_inputs(inputs)
        return None, None, None

    # --- completions ----------------------------------------------------------------------------------------

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        with self.times.within(StepPart.REWARDS):
            if self._episodes is not None:  # TRL has decoded each as one string
                completions = [episode.messages for episode in self._episodes.episodes]
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
            if self._eval_only_rewards.reward_funcs and not self.model.training:
                eval_only = self._calculate_eval_only(inputs, prompts, completions, completion_ids_list)
                rewards = torch.cat([rewards, eval_only], dim=1)
            self._check_model_scores(rewards, [example["row"] for example in inputs])
            if self._episodes is not None:  # the model is not to blame for a broken environment
                broken = self._of_all_ranks([episode.end in UNSCORED_ENDS for episode in self._episodes.episodes])
                rewards[torch.tensor(broken, device=rewards.device)] = torch.nan
            if self._turn_credit is not None:
                self._turn_credit.drop_unscored(rewards)
            self._failures.judge_batch(self.state.global_step + self.model.training, self._of_all_ranks)
        self._scored = completions, completion_ids_list, rewards
        trained_on = len(self._trained_rewards.reward_funcs)
        self._log_eval_only(rewards[:, trained_on:])
        return rewards[:, :trained_on]

    def _calculate_eval_only(self, *batch: Any) -> torch.Tensor:
        self._eval_only_rewards.install_in(self)
        try:
            scores: torch.Tensor = super()._calculate_rewards(*batch)
        finally:
            self._trained_rewards.install_in(self)
        return scores

    def _log_eval_only(self, scores: torch.Tensor) -> None:
        """Log the means over all ranks' completions that have a score, as TRL does for the other rewards."""
        if not scores.shape[1]:
            return
        metrics = self._metrics["eval"]
        for name, mean in zip(self._eval_only_rewards.reward_func_names, scores.nanmean(dim=0).tolist(), strict=True):
            metrics[f"rewards/{name}/mean"].append(mean)
        totals = (scores * self._eval_only_rewards.reward_weights.to(scores.device)).nansum(dim=1)
        totals[scores.isnan().all(dim=1)] = torch.nan
        metrics[evaluation.OTHER].append(totals.nanmean().item())

    def _check_model_scores(self, rewards: torch.Tensor, rows: list[int]) -> None:
        """Remove scores of reward models that aren't finite or on rows to which they don't apply."""
        start = self.accelerator.process_index * len(rows)
        for index, applies in self._models.items():
            if index >= rewards.shape[1]:
                continue  # a reward that is only computed in evaluations
            applied = self._of_all_ranks([applies is None or applies(row) for row in rows])
            scored, failures = drop_unusable(rewards[:, index], applied, slice(start, start + len(rows)))
            name = self._reward_names[index]
            self._failures.note(name, [rows[own] for own in scored], failures)
            self._log_metric(f"rewards/{name}/failed", len(failures) / max(len(scored), 1))
            if applies is not None:
                self._log_metric(rows_metric(name), len(scored) / len(rows))

    def _metrics_of_episodes(self) -> None:
        assert self._episodes is not None  # noqa: S101  # checked by the caller
        stats = self._of_all_ranks([figures.EpisodeStats.of(episode) for episode in self._episodes.episodes])
        metrics = self._metrics["train" if self.model.training else "eval"]
        for name, value in figures.metrics(stats, self._episodes.tools).items():
            metrics[name].append(value)

    def _of_all_ranks(self, items: list[T]) -> list[T]:
        gathered: list[T] = gather_object(items) if self.accelerator.num_processes > 1 else items
        return gathered

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self._announce_rows([example["row"] for example in inputs])
        if self._ahead is not None and self.model.training:
            self._ahead.expect(inputs[0]["row"], epochs_done=self._epochs_done)
        output = super()._generate_and_score_completions(inputs)
        self._log_correction(output)
        self._log_zero_spread()
        outcome = output["advantages"]
        if self._turn_credit is not None:
            output["advantages"] = self._credit_turns(self._turn_credit, outcome, output["completion_ids"].shape[1])
        if self._episodes is not None:
            supplied = [episode.advantages for episode in self._episodes.episodes]
            output["advantages"] = with_supplied_advantages(
                output["advantages"], supplied, output["completion_ids"].shape[1]
            )
        self._record([example["row"] for example in inputs], outcome)
        return output

    def _announce_rows(self, rows: list[int]) -> None:
        if self._episodes is not None:
            self._episodes.note(rows, step=self.state.global_step if self.model.training else EVALUATION_STEP)
        if self._groups is not None and self.model.training:
            self._groups.note(rows)

    def _credit_turns(self, credit: TurnCredit, outcome: torch.Tensor, width: int) -> torch.Tensor:
        """Return advantages per token, (B, `width`); TRL splits a batch by its first dimension, so it accepts them."""
        assert self._scored is not None  # noqa: S101  # TRL scores before it returns advantages
        completions, ids, _ = self._scored
        is_training = self.model.training
        metrics = self._metrics["train" if is_training else "eval"]
        episode_ends = [episode.end for episode in self._episodes.episodes] if self._episodes else [""] * len(ids)
        return credit.advantages(
            outcome,
            completions,
            ids,
            width=width,
            group=self.num_generations if is_training else self.num_generations_eval,
            aggregation=self.multi_objective_aggregation,
            scale=self.scale_rewards,
            broken=[end in UNSCORED_ENDS for end in episode_ends],
            rank=self.accelerator.process_index,
            gather=self._of_all_ranks,
            log=lambda name, value: metrics[name].append(value),
        )

    def _log_correction(self, output: dict[str, Any]) -> None:
        low, high = self.vllm_importance_sampling_clip_min, self.vllm_importance_sampling_clip_max
        clipped = correction.clipped_counts(output, mode=self.vllm_importance_sampling_mode, low=low, high=high)
        if clipped is not None:
            name, counts = clipped
            clipped_count, total = self.accelerator.reduce(counts, reduction="sum").tolist()
            self._metrics["train" if self.model.training else "eval"][name].append(clipped_count / max(total, 1.0))

    def _log_zero_spread(self) -> None:
        """Correct frac_reward_zero_std, which TRL logs by batch instead of by group if it scales over the batch."""
        if self.scale_rewards != "batch" and self.multi_objective_aggregation == "sum_then_normalize":
            return
        assert self._scored is not None  # noqa: S101  # TRL scores before it returns advantages
        weights, is_training = self.reward_weights.tolist(), self.model.training
        group = self.num_generations if is_training else self.num_generations_eval
        rewards = self._scored[2][:, : len(weights)]
        zero_spread_flags = advantages_of(rewards, weights, group, self.multi_objective_aggregation).zero_spread
        self._metrics["train" if is_training else "eval"]["frac_reward_zero_std"][-1] = sum(zero_spread_flags) / len(
            zero_spread_flags
        )

    def _record(self, rows: list[int], advantages: torch.Tensor) -> None:
        assert self._scored is not None  # noqa: S101  # TRL scores before it returns advantages
        completions, ids, rewards = self._scored
        self._scored = None
        own_rewards = rewards[self.accelerator.process_index * len(rows) :][: len(rows)]  # from those of all ranks
        episodes = self._episodes.episodes if self._episodes is not None else [None] * len(rows)
        samples = [
            self._as_sample(*columns)
            for columns in zip(
                *(rows, completions, ids, own_rewards.tolist(), advantages.tolist(), episodes, self._policy_steps),
                strict=True,
            )
        ]
        samples = self._of_all_ranks(samples)
        is_training = self.model.training
        if is_training and self._ahead is not None:
            self._ahead.log(self._metrics["train"], [sample.policy for sample in samples if sample.policy is not None])
        group = self.num_generations if is_training else self.num_generations_eval
        step = self.state.global_step + is_training  # global_step is incremented only when the step ends
        mode = "train" if is_training else "eval"
        self._samples.write(samples, group=group, step=step, mode=mode)
        self._samples.log_sources(samples, self._metrics[mode], group, self.multi_objective_aggregation)

    def _as_sample(
        self,
        row: int,
        completion: Any,
        tokens: Sequence[int],
        scores: list[float],
        advantage: float,
        episode: Episode | None = None,
        policy: int | None = None,
    ) -> Sample:
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        return Sample(
            row,
            completion_text(completion),
            len(tokens),
            episode.end if episode else end_of(completion, tokens, ends=ends, longest=self.max_completion_length),
            scores,
            advantage,
            json_copy(completion) if episode else turns(completion),
            episode.prompt if episode else None,
            policy,
        )

    # --- the ratio ------------------------------------------------------------------------------------------

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        if self._only_samples:
            return None, None, None
        # Within the loss they come from the update's own forward pass.
        part = StepPart.LOGPS if self.times.part is StepPart.PREPARING else StepPart.UPDATE
        with self.times.within(part):
            result = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._policy_logps = result[0].detach()
        return result

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)
        mode = "train" if self.model.training else "eval"
        self._metrics[mode]["mean_ratio"].append(correction.mean_ratio(inputs, self._policy_logps, self.accelerator))
        self._policy_logps = None
        return loss

    # --- start and resume ---------------------------------------------------------------------------------------------

    def start_from(self, checkpoint: Path) -> None:
        """Load a checkpoint's weights, without its optimizer and step. The base model remains the reference."""
        if not checkpoint.is_dir():
            raise SpecError(f"There is no checkpoint in {checkpoint} to start from.")
        self._load_from_checkpoint(str(checkpoint))

    def train(self, resume_from_checkpoint: Any = None, **arguments: Any) -> Any:
        if resume_from_checkpoint:
            checkpoint = Path(resume_from_checkpoint)
            self._epochs_done = rollout_state.epochs_done(checkpoint)
            if self.args.device.type == "cpu" and self.args.world_size > 1:
                rollout_state.let_cpu_ranks_load()
            self._step, self._buffered_inputs = rollout_state.load(checkpoint, rank=self.args.process_index)
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **arguments)

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        sampler = super()._get_train_sampler(dataset)
        if self._mix:
            sampler = MixedSampler(sampler, self.train_dataset["row"], self._mix)
        for _ in range(self._epochs_done):
            next(iter(sampler), None)  # draws one epoch's order
        return sampler

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with self._activity.doing(StepPart.SAVING), self._lanes.within(StepPart.SAVING):
            self._save_whole(model, trial)

    def _save_whole(self, model: Any, trial: Any) -> None:
        self._note_best(trial)
        super()._save_checkpoint(model, trial)
        if self._step % (self.args.steps_per_generation * self.num_iterations) != 0:
            rollout_state.save(
                Path(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}"),
                rank=self.args.process_index,
                micro_step=self._step,
                batches=self._buffered_inputs,
            )

    def end_after_last_step(self) -> None:
        """Save and end as the training loop does at a stop, for when the current step can't be finished."""
        step = self.state.global_step
        is_saved = Path(self._get_output_dir(trial=None), f"checkpoint-{step}").is_dir()
        self.accelerator.wait_for_everyone()  # before a rank creates that folder
        if step and not is_saved:
            self._save_checkpoint(self.model_wrapped, None)
            self.callback_handler.on_save(self.args, self.state, self.control)
        self.callback_handler.on_train_end(self.args, self.state, self.control)

    def _note_best(self, trial: Any) -> None:
        """Record the best checkpoint, which is never deleted, with its score for resumed runs."""
        name = self._best_metric
        value = evaluation.checkpoint_figure(name, [entry[name] for entry in self.state.log_history if name in entry])
        before = self.state.best_metric if self.state.best_model_checkpoint else None
        if value is not None and (before is None or evaluation.is_better(name, value, before)):
            folder = Path(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}")
            self.state.best_metric, self.state.best_model_checkpoint = value, str(folder)


def _finish() -> None:
    if torch.cuda.is_initialized():  # at most twice per step, where TRL soon reads a number from the GPU anyway
        torch.cuda.synchronize()
