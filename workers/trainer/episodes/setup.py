"""Preparation of a run with episodes before its model is loaded, so that every problem is found early."""

from dataclasses import dataclass, replace
from typing import Any

from accelerate.utils import broadcast_object_list
from transformers import AutoConfig, AutoTokenizer

from workers.contract.run.spec import AttemptSpec
from workers.environments.executor import Executor, Unusable
from workers.rewards.tools import Tools
from workers.trainer.configuration.spec import SpecError, path_of
from workers.trainer.data import Rows
from workers.trainer.episodes import templates
from workers.trainer.episodes.episode import Source
from workers.trainer.episodes.rollout import Rollouts

_UNKNOWN_CONTEXT = 1 << 20


@dataclass(frozen=True)
class Setup:
    """Parts of a trainer whose completions are episodes."""

    rollouts: Source
    tokenizer: Any
    """The trainer's tokenizer with the run's chat template, saved with checkpoints."""


def prepare(spec: AttemptSpec, rows: Rows, tools: Tools, *, chat_arguments: dict[str, Any]) -> Setup | None:
    """Prepare episodes in an environment; return None for other runs. Raises SpecError if the prompts aren't chats or
    the environment can't be used."""
    episodes = spec.run.episodes
    if episodes is None or episodes.gateway is not None:
        return None
    if not rows.by_id.chat:
        raise SpecError("Episodes are chats, but the dataset's prompts are plain strings. Map them to messages.")
    concurrency = max(1, episodes.limits.at_once // spec.run.hardware.processes)
    try:
        executor = Executor(episodes.parts, replace(episodes.limits, at_once=concurrency), tools)
    except Unusable as error:
        raise SpecError(f"The environment {episodes.name!r} can't be played. {error}") from error
    descriptions = [tool.as_dict() for tool in executor.descriptions]
    chat_tokenizer, trainer_tokenizer = tokenizer_of(spec), tokenizer_of(spec)
    chat = templates.choose(
        chat_tokenizer, episodes.chat_template, descriptions, game=executor.has_game, arguments=chat_arguments
    )
    trainer_tokenizer.chat_template = chat_tokenizer.chat_template
    rollouts = Rollouts(
        episodes,
        executor,
        chat,
        rows=rows.by_id,
        seed=int(spec.run.grpo.get("seed", 42)),
        context=context_length(spec),
    )
    return Setup(rollouts, trainer_tokenizer)


def limit_context(rollouts: Source, trainer: Any) -> None:
    """Limit the rollouts to the context length of the engine that generates."""
    if not trainer.use_vllm:
        return
    generation = trainer.vllm_generation
    if (engine := getattr(generation, "llm", None)) is not None:
        rollouts.limit_context(engine.llm_engine.vllm_config.model_config.max_model_len)
    elif trainer.accelerator.is_main_process:  # which sends the requests of all ranks
        rollouts.limit_context(generation.vllm_client.get_server_info()["model_config"].get("max_model_len"))
    context = [rollouts.context]
    broadcast_object_list(context, from_process=0)
    rollouts.limit_context(context[0])


def tokenizer_of(spec: AttemptSpec) -> Any:
    """Load the model's tokenizer as TRL does. Raises SpecError if it can't be loaded."""
    model = spec.run.model
    settings = {"trust_remote_code": model.trust_remote_code, "revision": model.revision}
    try:
        return AutoTokenizer.from_pretrained(path_of(model), truncation_side="left", padding_side="left", **settings)
    except (OSError, ValueError) as error:
        raise SpecError(f"The model's tokenizer can't be loaded: {error}") from error


def context_length(spec: AttemptSpec) -> int:
    """Return how many tokens the model's context holds. Raises SpecError if the model's config can't be read."""
    model = spec.run.model
    settings = {"trust_remote_code": model.trust_remote_code, "revision": model.revision}
    try:
        config = AutoConfig.from_pretrained(path_of(model), **settings).get_text_config()
    except (OSError, ValueError) as error:
        raise SpecError(f"The model's config can't be read: {error}") from error
    return int(getattr(config, "max_position_embeddings", None) or _UNKNOWN_CONTEXT)
