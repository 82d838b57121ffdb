"""The training of one attempt, from a checked spec to its last checkpoint."""

import contextlib
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from workers.contract.run.evaluation import EVALUATION
from workers.contract.run.spec import AttemptSpec, outcome_weights
from workers.contract.stack.commands import CUDNN_ATTENTION
from workers.contract.wire.names import EventKind, FileName
from workers.rewards.tools import Tools
from workers.trainer import data
from workers.trainer.activity import RankActivity
from workers.trainer.configuration import config, hardware, ranks
from workers.trainer.configuration.environment import local_rank, rank
from workers.trainer.configuration.spec import (
    NoStepsError,
    RewardFailedError,
    SpecError,
    StoppedWaitingError,
    path_of,
)
from workers.trainer.episodes import setup
from workers.trainer.episodes.crediting import TurnCredit
from workers.trainer.gateway import setup as gateway
from workers.trainer.prompt_selection import PromptSelectingTrainer
from workers.trainer.recording import memory
from workers.trainer.recording.callbacks import MetricsWriter, StopCallback
from workers.trainer.recording.metrics import LineFile
from workers.trainer.recording.samples import SampleFile
from workers.trainer.recording.waterfall import Lanes, Waterfall
from workers.trainer.rollouts import adapter_generation, canary
from workers.trainer.scoring import reward_models, rewards
from workers.trainer.scoring.concurrent_rewards import ConcurrentRewards
from workers.trainer.scoring.failures import Failures
from workers.trainer.scoring.groups import GroupFeed, score_together
from workers.trainer.trainer import WatchedTrainer


def train(spec: AttemptSpec, rows: data.Rows, folder: Path, metrics: LineFile, tools: Tools) -> None:
    """Train or evaluate. Raises RewardFailedError after the last checkpoint if rewards failed on too many rows."""
    if spec.run.hardware.threads:
        torch.set_num_threads(spec.run.hardware.threads)
    ranks.join_group(spec)
    if os.environ.get(CUDNN_ATTENTION) == "0":
        torch.backends.cuda.enable_cudnn_sdp(
            False
        )  # a lower priority isn't enough: with a mask torch would still use it
    arguments = config.build(spec, folder, gpu_share=memory.cap(spec.run.hardware, local_rank=local_rank()))
    evaluates = spec.run.kind == EVALUATION
    if not evaluates:
        config.check_steps(arguments, rows.train, spec.run.data)

    chat_arguments = arguments.chat_template_kwargs or {}
    gateway_setup = gateway.prepare(spec, rows, folder, chat_arguments=chat_arguments)
    episodes = gateway_setup or setup.prepare(spec, rows, tools, chat_arguments=chat_arguments)

    def stage(name: str) -> None:
        metrics.event(EventKind.STAGE, {"stage": name})

    stage("loading model")
    eval_only = frozenset(reward.name for reward in spec.run.eval_rewards)
    failures = Failures(share=spec.run.failed_share, event=metrics.event, exempt_rewards=eval_only)
    activity = RankActivity(folder, rank())
    waterfall = Waterfall(lambda step, data: metrics.event(EventKind.SPANS, data, step=step))
    lanes = Lanes(waterfall, spec)
    stop = StopCallback(folder, failures)
    with adapter_generation.rollouts(spec, folder, stage) as servers:
        trainer = _trainer(spec, rows, folder, arguments, tools, failures, activity, lanes, episodes)
    if not evaluates:
        canary.watch(trainer, spec, servers)
    if episodes is not None:
        setup.limit_context(episodes.rollouts, trainer)
    if gateway_setup is not None:
        gateway_setup.open(trainer, activity)
    trainer.add_callback(MetricsWriter(metrics, stop, trainer.times, waterfall))
    trainer.add_callback(stop)

    if spec.run.start_from and spec.resume_from is None:
        trainer.start_from(folder.parent.parent / spec.run.start_from)
    if evaluates:  # the evaluation is the run's only step
        metrics.event(EventKind.TRAINING, {"max_steps": 1, "step": 0}, step=0)
        trainer.evaluate()
        metrics.event(EventKind.TRAINED, {"how": "completed"}, step=1)
    else:
        stage("starting the first step")
        try:
            trainer.train(resume_from_checkpoint=spec.resume_from)
        except StoppedWaitingError:
            stop.requested = True
            trainer.end_after_last_step()
    if gateway_setup is not None:
        gateway_setup.close()
    if servers is not None:
        servers.close()
    # Destroy the process group explicitly: at the interpreter's exit, one of its threads may abort a finished rank.
    trainer.accelerator.wait_for_everyone()
    trainer.accelerator.end_training()
    tools.close()
    if trainer.state.global_step == 0 and not evaluates:
        raise NoStepsError("Training ended without a step.")
    failures.judge_at_end()
    if failures.verdict and not stop.requested:
        error = RewardFailedError(failures.verdict)
        ranks.exit_rank(error)
        raise error
    ranks.exit_rank()


def _trainer(
    spec: AttemptSpec,
    rows: data.Rows,
    folder: Path,
    arguments: Any,
    tools: Tools,
    failures: Failures,
    activity: RankActivity,
    lanes: Lanes,
    episodes: setup.Setup | None,
) -> WatchedTrainer:
    run = spec.run
    credit = TurnCredit.of(run)

    @contextlib.contextmanager
    def record_scoring(reward: str) -> Iterator[None]:
        with activity.doing(reward), lanes.reward(reward):
            yield

    early = ConcurrentRewards(run, tools, lanes.reward) if run.rewards_beside else None
    turn_scores = credit.scores if credit else {}
    sources = run.data.every_source
    factory = rewards.RewardFunctions(
        rows, tools, failures, record_scoring, turn_scores, score_together, early, sources
    )
    functions: list[Any] = list(factory.of(run.every_reward))
    tokenizers: list[Any] = [None] * len(functions)
    models = reward_models.load(run, chat=rows.by_id.chat)
    for reward_model in models:
        functions[reward_model.index], tokenizers[reward_model.index] = reward_model.model, reward_model.tokenizer
    samples = SampleFile(
        folder / FileName.SAMPLES,
        rows=rows,
        names=[reward.name for reward in run.every_reward],
        weights=outcome_weights(run.rewards),
        writes=rank() == 0,
    )

    def group_feed(trainer: WatchedTrainer) -> GroupFeed | None:
        return GroupFeed(trainer, early, rows, episodes=episodes.rollouts if episodes else None) if early else None

    trainer_class = PromptSelectingTrainer if run.prompts.on else WatchedTrainer
    selection = {"prompts": run.prompts} if run.prompts.on else {}
    try:
        return trainer_class(
            **selection,
            samples=samples,
            failures=failures,
            activity=activity,
            lanes=lanes,
            reward_names=[reward.name for reward in run.every_reward],
            trained_on=len(run.rewards),
            models={
                reward_model.index: factory.rows_of(run.every_reward[reward_model.index]) for reward_model in models
            },
            model=path_of(run.model),
            reward_funcs=functions,
            reward_processing_classes=tokenizers,
            args=arguments,
            train_dataset=data.to_dataset(rows, rows.train),
            eval_dataset=data.to_dataset(rows, rows.evaluation) if rows.evaluation else None,
            peft_config=config.lora(run.lora),
            mix=[source.weight for source in sources] if run.data.sources else (),
            best_metric=run.keep_best,
            only_samples=run.kind == EVALUATION,
            ahead=run.ahead,
            episodes=episodes.rollouts if episodes else None,
            turn_credit=credit,
            groups=group_feed,
            processing_class=episodes.tokenizer if episodes else None,
            quantization_config=hardware.quantization(run),
        )
    except (ValueError, NotImplementedError, OSError) as error:
        # These are raised by transformers, peft and TRL for a model or setting that they can't use. A subclass of
        # OSError means something else, such as an unresponsive server or a full disk.
        if isinstance(error, OSError) and type(error) is not OSError:
            raise
        traceback.print_exc()
        raise SpecError(f"The trainer can't be set up: {error}") from error
