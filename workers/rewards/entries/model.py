"""A reward model: a sequence-classification model that TRL runs on the trainer's device, for one number."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workers.rewards.parameters import Params, param
from workers.rewards.reward import Completion, Cost, Example, Reward, Row, Scores
from workers.rewards.tools import Tools, Unavailable

KEY = "reward_model"
"""The key in workers.contract by which hosts know which model to download."""
_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


@dataclass(frozen=True)
class RewardModelParams(Params):
    model: str = param("", "A hub id such as org/name, or a folder on the host: a sequence-classification model.")
    revision: str = param("", "Branch, tag or commit of a hub id; empty: main.")

    def problem(self) -> str | None:
        if not self.model:
            return "model: choose a model"
        if not self.model.startswith(("/", "~/", "./", "../")) and not _HUB_ID.fullmatch(self.model):
            return "model: must be a hub id such as org/name, or a folder on the host"
        if self.revision and not _REVISION.fullmatch(self.revision):
            return "revision: must be a branch, a tag or a commit"
        return None


def reward_model(completions: Sequence[Completion], rows: Sequence[Row], params: Any, tools: Tools) -> Scores:
    """Return any number, about -5 to 5 as a rule: the one logit of a sequence-classification model for prompt and
    completion. Higher: it likes the answer more; 0 has no meaning of its own. For what can't be computed, such as tone.
    Always raises Unavailable: TRL asks the model itself, in the trainer."""
    raise Unavailable("A reward model is asked by the trainer only: it needs the model in memory.")


REWARDS = (
    Reward(
        key=KEY,
        title="Reward model",
        help="The score of a sequence-classification model for prompt and completion.",
        params=RewardModelParams,
        range=(-5.0, None),
        typical=(-5.0, 5.0),
        batch=reward_model,
        per_turn=False,
        cost=Cost.TRAINER,
        low="The model likes the answer least; there is no minimum.",
        high="The model likes the answer most; there is no maximum.",
        use="For what can't be computed, such as tone or helpfulness. It takes memory on the trainer's device beside "
        "the policy, and long optimization finds what it overrates: keep beta above 0, or pair it.",
        examples=(
            Example("Sure, here is how.", None, params={"model": "org/reward-model"},
                    why="Scored by the trainer only."),
        ),
    ),
)  # fmt: skip
