"""Reward models, loaded as the run specifies and called by TRL.

Passing only the model's name to TRL is not enough: it would use the policy's revision, and a randomly initialized head
if the model has none.
"""

import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from jinja2 import TemplateError
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from workers.contract.run.spec import REWARD_MODEL, RewardSpec, RunSpec
from workers.rewards.reward import Failure
from workers.trainer.configuration.spec import SpecError

FATAL_SIGNS = ("CUDA", "memory")
"""Parts of messages about device errors or lack of memory, after which nothing else would work."""


@dataclass(frozen=True)
class RewardModel:
    index: int
    name: str
    model: Any
    tokenizer: Any


def load(run: RunSpec, *, chat: bool) -> list[RewardModel]:
    """Load and return the run's reward models. `chat`: whether prompts are messages. Raises SpecError if a model can't
    be loaded or isn't a sequence classifier."""
    rewards = enumerate(run.every_reward)
    return [_load(index, reward, run, chat) for index, reward in rewards if reward.function == REWARD_MODEL]


def _load(index: int, reward: RewardSpec, run: RunSpec, chat: bool) -> RewardModel:
    path, revision = str(reward.params["model"]), str(reward.params.get("revision") or "") or None
    path = str(Path(path).expanduser()) if path.startswith("~") else path
    try:
        config = AutoConfig.from_pretrained(path, revision=revision)
        if not any("ForSequenceClassification" in name for name in config.architectures or ()):
            raise SpecError(f"Reward {reward.name!r}: {path} is not a sequence-classification model.")
        model = AutoModelForSequenceClassification.from_pretrained(
            path,
            revision=revision,
            num_labels=1,
            dtype="auto" if run.hardware.trainer_gpus else torch.float32,
            use_safetensors=True,
        )
        tokenizer = AutoTokenizer.from_pretrained(path, revision=revision)
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        traceback.print_exc()
        error_text = " ".join(str(error).split())[:300]
        raise SpecError(f"Reward {reward.name!r}: the model {path} can't be loaded: {error_text}") from error
    if tokenizer.pad_token_id is None and tokenizer.eos_token is None:
        raise SpecError(
            f"Reward {reward.name!r}: the tokenizer of {path} has neither a padding token nor an end token."
        )
    if chat and tokenizer.chat_template is None:
        raise SpecError(
            f"Reward {reward.name!r}: prompts are messages, but the tokenizer of {path} has no chat template."
        )
    if run.episodes is not None and not _can_render_calls(tokenizer):
        raise SpecError(
            f"Reward {reward.name!r}: the chat template of {path} can't render tool calls and their results, so the "
            "model can't score episodes."
        )
    _guard(model, reward.name)
    return RewardModel(index, reward.name, model, tokenizer)


def drop_unusable(scores: torch.Tensor, applied: Sequence[bool], own: slice) -> tuple[list[int], list[Failure]]:
    """Set scores to NaN that aren't finite or are on rows to which the model doesn't apply. TRL skips NaN, but infinity
    would spoil all advantages. Return the indexes of this rank's scored completions, and the failures among these.

    `scores` and `applied` are those of all ranks, `own` this rank's part of them."""
    applies = torch.tensor(applied, device=scores.device)
    finite = torch.isfinite(scores)
    scores[~(finite & applies)] = torch.nan
    scored = applies[own].nonzero().flatten().tolist()
    are_finite = finite[own][applies[own]].tolist()
    message = "The reward model's score is not a finite number."
    return scored, [Failure(i, "not_a_number", message) for i, is_finite in enumerate(are_finite) if not is_finite]


def _can_render_calls(tokenizer: Any) -> bool:
    """Return whether the chat template renders calls without raising, since TRL renders each episode with it."""
    call = {"type": "function", "function": {"name": "find", "arguments": {"word": "a"}}}
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    try:
        tokenizer.apply_chat_template([*messages, {"role": "tool", "name": "find", "content": "b"}], tokenize=False)
    except (TemplateError, TypeError):
        return False
    return True


def _guard(model: Any, name: str) -> None:
    """Wrap the model's forward pass, so that inputs that the model can't handle (longer than its positions) have no
    score instead of ending the training."""
    original = model.forward

    def forward(input_ids: Any, **inputs: Any) -> Any:
        try:
            return original(input_ids=input_ids, **inputs)
        except (IndexError, RuntimeError, ValueError) as error:
            if any(sign in str(error) for sign in FATAL_SIGNS):
                raise
            print(f"Reward {name!r} raised {type(error).__name__}: {error}", file=sys.stderr)
            return SimpleNamespace(logits=torch.full((len(input_ids), 1), torch.nan, device=input_ids.device))

    model.forward = forward
