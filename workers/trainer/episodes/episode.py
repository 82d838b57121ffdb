"""One episode as the trainer has it: its messages, their tokens, what the environment gave, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Message = dict[str, Any]
"""As workers.contract.run.episodes describes it, with the keys that are known by now."""


@dataclass
class Turn:
    """One message of the model with what answers it."""

    start: int
    """Where the model's tokens begin among the completion's."""
    stop: int
    """Behind the model's last token, where the tokens of what answers it begin; they reach to the next turn."""
    message: Message
    """The model's. Its `reward` and `advantage` are written by those who know them."""
    answers: list[Message] = field(default_factory=list)
    """Results of its calls, or an observation."""

    @property
    def reward(self) -> float | None:
        """What the environment gave for this turn; None: nothing."""
        given = [one["reward"] for one in self.answers if one.get("reward") is not None]
        return float(sum(given)) if given else None


@dataclass
class Episode:
    """The completion of one row. `ids`, `own` and `logprobs` are of one length."""

    row: Mapping[str, Any]
    seed: int
    """Of the environment's reset; one for all members of a group."""
    prompt: Any = ""
    """What the model got: the dataset's prompt, with what the environment says at its start."""
    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    """The completion's tokens, those of results and observations among them."""
    own: list[int] = field(default_factory=list)
    """1: the model wrote the token. 0: it carries no loss."""
    logprobs: list[float | None] = field(default_factory=list)
    """Of the sampled tokens; 0.0 where the model didn't write. Empty where the backend tells none."""
    turns: list[Turn] = field(default_factory=list)
    end: str = ""
    """eos | length | stop, or one of EpisodeEnd; "": it goes on."""
    seconds: float = 0.0
    advantages: list[float] | None = None
    """One per completion token, supplied by the environment; None: they are computed from the rewards."""

    @property
    def live(self) -> bool:
        return not self.end

    @property
    def messages(self) -> list[Message]:
        """The completion's, in order; the objects are the turns'."""
        return list(self._messages())

    def _messages(self) -> Iterator[Message]:
        for turn in self.turns:
            yield turn.message
            yield from turn.answers

    def add_reward(self, reward: float) -> None:
        """Add a reward that the environment gave at the end."""
        self.turns[-1].answers.append({"role": "user", "content": "", "tokens": 0, "reward": reward})


def as_trl(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Return what TRL expects of a rollout_func; log-probabilities only if all episodes have them."""
    has_logprobs = all(episode.logprobs for episode in episodes)
    return {
        "prompt_ids": [episode.prompt_ids for episode in episodes],
        "completion_ids": [episode.ids for episode in episodes],
        "logprobs": [episode.logprobs for episode in episodes] if has_logprobs else None,
        "env_mask": [episode.own for episode in episodes],
    }


class Source(Protocol):
    """Where the episodes of a run come from: TRL's rollout_func, with what the trainer wants of it."""

    @property
    def episodes(self) -> list[Episode]:
        """Those of the last generation on this rank, in the inputs' order."""

    @property
    def tools(self) -> Sequence[str]:
        """By name, as they are charted."""

    @property
    def context(self) -> int:
        """Tokens that prompt and completion may have together."""

    def bound(self, context: int | None) -> None:
        """The backend's own limit, where it has one."""

    def note(self, rows: Sequence[int], *, step: int) -> None:
        """What TRL doesn't tell a rollout_func."""

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]: ...
