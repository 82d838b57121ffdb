"""A reward model: a sequence-classification model with one output, which TRL runs on the trainer's device."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workers.rewards.parameters import Params, param
from workers.rewards.reward import Completion, Cost, Example, Reward, Row, Scores
from workers.rewards.tools import Tools, Unavailable

KEY = "reward_model"
"""Key of this reward in workers.contract, by which hosts find the models to download."""
_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


@dataclass(frozen=True)
class RewardModelParams(Params):
    model: str = param("", "A sequence-classification model: a hub id such as org/name, or a folder on the host.")
    revision: str = param("", "Branch, tag or commit of a model from the hub; main if empty.")

    def problem(self) -> str | None:
        if not self.model:
            return "model: choose a model"
        if not self.model.startswith(("/", "~/", "./", "../")) and not _HUB_ID.fullmatch(self.model):
            return "model: must be a hub id such as org/name, or a folder on the host"
        if self.revision and not _REVISION.fullmatch(self.revision):
            return "revision: must be a branch, a tag or a commit"
        return None


def reward_model(completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools) -> Scores:
    """Return a number, usually between -5 and 5: the model's single logit for the prompt and the completion. 0 has no
    special meaning. This always raises Unavailable, because only TRL runs the model, in the trainer."""
    raise Unavailable("Only the trainer can score with a reward model: it needs the model in memory.")


REWARDS = (
    Reward(
        key=KEY,
        title="Reward model",
        help="The score that a sequence-classification model gives the prompt and the completion.",
        params=RewardModelParams,
        range=(-5.0, None),
        typical=(-5.0, 5.0),
        batch=reward_model,
        per_turn=False,
        cost=Cost.TRAINER,
        low="The model prefers other answers; there is no minimum.",
        high="The model prefers this answer; there is no maximum.",
        use="For what can't be computed, such as tone or helpfulness. The reward model shares the trainer's device "
        "with the policy, and long training exploits what it overrates: keep beta above 0, or combine it with another "
        "reward.",
        examples=(
            Example("Sure, here is how.", None, params={"model": "org/reward-model"},
                    why="Only the trainer can score it."),
        ),
    ),
)  # fmt: skip
