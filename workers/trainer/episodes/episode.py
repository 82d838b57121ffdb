"""An episode in the trainer: its messages, their tokens, the environment's rewards, and how it ended."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]
"""Message in the form of workers.contract.run.episodes, with the keys known so far."""


@dataclass
class ModelTurn:
    """One message of the model, with the environment's answers."""

    start: int
    stop: int
    """Index after the model's last token. The tokens of the answers follow, up to the next turn."""
    message: Message
    """Message of the model, to which `reward` and `advantage` are added later."""
    answers: list[Message] = field(default_factory=list)
    """Results of the model's calls, or an observation."""

    @property
    def reward(self) -> float | None:
        """The environment's reward for this turn, or None if it gave none."""
        rewards = [answer["reward"] for answer in self.answers if answer.get("reward") is not None]
        return float(sum(rewards)) if rewards else None


@dataclass
class Episode:
    """The completion of one row. `ids`, `own` and `logprobs` have equal lengths."""

    row: Mapping[str, Any]
    seed: int
    """Seed of the environment's reset, the same for all members of a group."""
    prompt: Any = ""
    """Prompt of the dataset, with the environment's opening."""
    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    """1 for tokens that the model generated; 0 for others, which don't enter the loss."""
    logprobs: list[float | None] = field(default_factory=list)
    """Log-probabilities of sampled tokens, 0.0 for others; empty if the backend returns none."""
    turns: list[ModelTurn] = field(default_factory=list)
    end: str = ""
    """eos | length | stop, or one of EpisodeEnd; "" while the episode is live."""
    seconds: float = 0.0
    advantages: list[float] | None = None
    """Advantages supplied by the environment, one per completion token; None to compute them from the rewards."""

    @property
    def is_live(self) -> bool:
        return not self.end

    @property
    def messages(self) -> list[Message]:
        """The messages of the completion in order; the same objects as in the turns."""
        return [message for turn in self.turns for message in (turn.message, *turn.answers)]

    def add_reward(self, reward: float) -> None:
        """Add a reward for the end of the episode."""
        self.turns[-1].answers.append({"role": "user", "content": "", "tokens": 0, "reward": reward})


def as_trl(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Convert episodes to a rollout_func's result, with log-probabilities only if all episodes have them."""
    has_logprobs = all(episode.logprobs for episode in episodes)
    return {
        "prompt_ids": [episode.prompt_ids for episode in episodes],
        "completion_ids": [episode.ids for episode in episodes],
        "logprobs": [episode.logprobs for episode in episodes] if has_logprobs else None,
        "env_mask": [episode.own for episode in episodes],
    }


class Source(ABC):
    """A source of episodes: TRL's rollout_func, with an interface for the trainer."""

    def __init__(self, rows: Mapping[int, Any], *, context: int, tools: Sequence[str] = ()) -> None:
        self._rows = rows
        self._row_ids: list[int] = []
        self._step = 0
        self.episodes: list[Episode] = []
        """Episodes of the last generation on this rank, in the inputs' order."""
        self.tools = tools
        self.context = context
        """Maximum number of tokens of prompt and completion together."""

    def limit_context(self, context: int | None) -> None:
        """Lower `self.context` to a backend's limit, if it has one."""
        self.context = min(self.context, context or self.context)

    def note(self, rows: Sequence[int], *, step: int) -> None:
        """Announce the rows of the next generation, which TRL doesn't pass to a rollout_func. `step`: the training
        step, or EVALUATION_STEP."""
        self._row_ids, self._step = list(rows), step

    @abstractmethod
    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]: ...
