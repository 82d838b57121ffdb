"""An episode in the trainer: its messages, their tokens, the environment's rewards, and how it ended."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]
"""In the form of workers.contract.run.episodes, with the keys known so far."""


@dataclass
class ModelTurn:
    """One message of the model with its answers."""

    start: int
    """Index of the model's first token among the completion's."""
    stop: int
    """Index after the model's last token. The tokens of the answers follow, up to the next turn."""
    message: Message
    """The model's message; `reward` and `advantage` are added later."""
    answers: list[Message] = field(default_factory=list)
    """Results of the model's calls, or an observation."""

    @property
    def reward(self) -> float | None:
        """The environment's reward for this turn; None: none."""
        rewards = [answer["reward"] for answer in self.answers if answer.get("reward") is not None]
        return float(sum(rewards)) if rewards else None


@dataclass
class Episode:
    """The completion of one row. `ids`, `own` and `logprobs` have equal lengths."""

    row: Mapping[str, Any]
    seed: int
    """Seed of the environment's reset, the same for all members of a group."""
    prompt: Any = ""
    """The dataset's prompt with the environment's opening."""
    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    """The completion's token ids, including results and observations."""
    own: list[int] = field(default_factory=list)
    """1 for tokens that the model wrote; 0 for others, which carry no loss."""
    logprobs: list[float | None] = field(default_factory=list)
    """Log-probabilities of sampled tokens, 0.0 for others; empty if the backend returns none."""
    turns: list[ModelTurn] = field(default_factory=list)
    end: str = ""
    """eos | length | stop, or one of EpisodeEnd; "" while the episode is live."""
    seconds: float = 0.0
    advantages: list[float] | None = None
    """One per completion token, supplied by the environment; None: they are computed from the rewards."""

    @property
    def live(self) -> bool:
        return not self.end

    @property
    def messages(self) -> list[Message]:
        """The completion's messages in order, the same objects as in the turns."""
        return [message for turn in self.turns for message in (turn.message, *turn.answers)]

    def add_reward(self, reward: float) -> None:
        """Add a reward for the end of the episode."""
        self.turns[-1].answers.append({"role": "user", "content": "", "tokens": 0, "reward": reward})


def as_trl(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Convert episodes to the answer of a rollout_func; log-probabilities only if all episodes have them."""
    has_logprobs = all(episode.logprobs for episode in episodes)
    return {
        "prompt_ids": [episode.prompt_ids for episode in episodes],
        "completion_ids": [episode.ids for episode in episodes],
        "logprobs": [episode.logprobs for episode in episodes] if has_logprobs else None,
        "env_mask": [episode.own for episode in episodes],
    }


class Source(ABC):
    """A source of episodes: TRL's rollout_func, with the interface for the trainer."""

    def __init__(self, rows: Mapping[int, Any], *, context: int, tools: Sequence[str] = ()) -> None:
        self._rows = rows
        self._row_ids: list[int] = []
        self._step = 0
        self.episodes: list[Episode] = []
        """The last generation's episodes on this rank, in the inputs' order."""
        self.tools = tools
        """Names of the tools, for charts."""
        self.context = context
        """The limit of tokens of prompt and completion together."""

    def bound(self, context: int | None) -> None:
        """Lower `context` to the backend's own limit, if it has one."""
        self.context = min(self.context, context or self.context)

    def note(self, rows: Sequence[int], *, step: int) -> None:
        """Announce the next generation's rows, which TRL doesn't pass to a rollout_func. `step`: or EVALUATED."""
        self._row_ids, self._step = list(rows), step

    @abstractmethod
    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]: ...
