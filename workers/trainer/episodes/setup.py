"""What a run with episodes needs before its model is loaded; everything that can be wrong with it is found here."""

from __future__ import annotations

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

_UNSTATED = 1 << 20
"""The context of a model whose config tells none."""


@dataclass(frozen=True)
class Setup:
    rollouts: Source
    tokenizer: Any
    """The trainer's, with the run's chat template: checkpoints are saved with it."""


def prepare(spec: AttemptSpec, rows: Rows, tools: Tools, *, chat_arguments: dict[str, Any]) -> Setup | None:
    """None where completions are one turn. Raises SpecError."""
    episodes = spec.run.episodes
    if episodes is None or episodes.gateway is not None:
        return None
    if not rows.by_id.chat:
        raise SpecError("Episodes are chats, and the dataset's prompts are plain texts. Map them to messages.")
    at_once = max(1, episodes.limits.at_once // spec.run.hardware.processes)
    try:
        executor = Executor(episodes.parts, replace(episodes.limits, at_once=at_once), tools)
    except Unusable as error:
        raise SpecError(f"The environment {episodes.name!r} can't be played. {error}") from error
    model = path_of(spec.run.model)
    described = [tool.as_dict() for tool in executor.descriptions]
    of_chat, of_trainer = tokenizer_of(spec, model), tokenizer_of(spec, model)
    chat = templates.choose(
        of_chat, episodes.chat_template, described, game=executor.has_game, arguments=chat_arguments
    )
    of_trainer.chat_template = of_chat.chat_template
    rollouts = Rollouts(
        episodes,
        executor,
        chat,
        rows=rows.by_id,
        seed=int(spec.run.grpo.get("seed", 42)),
        context=context_of(spec, model),
    )
    return Setup(rollouts, of_trainer)


def bound(rollouts: Source, trainer: Any) -> None:
    """Let the rollouts keep to the context of the engine that generates."""
    if not trainer.use_vllm:
        return
    generation = trainer.vllm_generation
    if (engine := getattr(generation, "llm", None)) is not None:
        rollouts.bound(engine.llm_engine.vllm_config.model_config.max_model_len)
    elif trainer.accelerator.is_main_process:  # which sends the requests of all ranks
        rollouts.bound(generation.vllm_client.get_server_info()["model_config"].get("max_model_len"))
    told = [rollouts.context]
    broadcast_object_list(told, from_process=0)
    rollouts.bound(told[0])


def tokenizer_of(spec: AttemptSpec, model: str) -> Any:
    settings = {"trust_remote_code": spec.run.model.trust_remote_code, "revision": spec.run.model.revision}
    try:  # as TRL loads it
        return AutoTokenizer.from_pretrained(model, truncation_side="left", padding_side="left", **settings)
    except (OSError, ValueError) as error:
        raise SpecError(f"The model's tokenizer can't be loaded: {error}") from error


def context_of(spec: AttemptSpec, model: str) -> int:
    settings = {"trust_remote_code": spec.run.model.trust_remote_code, "revision": spec.run.model.revision}
    try:
        config = AutoConfig.from_pretrained(model, **settings).get_text_config()
    except (OSError, ValueError) as error:
        raise SpecError(f"The model's config can't be read: {error}") from error
    return int(getattr(config, "max_position_embeddings", None) or _UNSTATED)
