"""Selection of a run's prompts: dynamic sampling, and drawing them by how much they teach. Standard library only.

Dynamic sampling is DAPO's (Yu et al. 2025, arXiv:2503.14476, section 3.2): a group whose completions all score the same
has advantage 0 everywhere, so another prompt takes its place. Weights by difficulty follow Foster et al. 2025
(arXiv:2502.12272): a prompt that is solved with probability p teaches in proportion to p(1 - p), the variance of its
reward, or to the square root of that where a group's advantages are divided by their standard deviation, as GRPO's are.
Both are off by default, and a run without them trains exactly as TRL does.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from workers.contract.run.episodes import EpisodeSpec
from workers.contract.run.problem import Problem

MAX_ROUNDS = 20
DRAWN_WITHOUT, WITHOUT_SPREAD = "prompts/drawn_without_spread", "prompts/without_spread"
EXTRA_TOKENS, EXTRA_ROUNDS, EFFECTIVE = "prompts/extra_tokens", "prompts/extra_rounds", "prompts/effective"
MEAN_REWARD = "prompts/mean_reward"
"""Metrics of one generation each."""
TEACHES, TEACH_LITTLE, UNSEEN = "teach", "teach_little", "unseen"
"""Kinds of prompts: known to teach, known to teach little, and never seen."""
REPLACED = "replaced"
"""Mode in samples.jsonl of groups that were generated and scored but not trained on; the others are train and eval."""


SOURCE_REWARD, SOURCE_LENGTH, SOURCE_ZERO_SPREAD = "reward", "length", "zero_spread"
"""Figures of the prompts from one source: the mean total reward, the mean tokens per completion, and the share of
groups in which all completions got the same reward."""
MAX_SOURCE_CHARS = 60
"""Maximum length of a source's name in metrics and stored groups; longer names are cut off."""
_SOURCE = re.compile(r"sources/(.+)/([a-z_]+)")


def source_metric(source: str, figure: str) -> str:
    return f"sources/{source}/{figure}"


def sources(names: Iterable[str], figure: str = SOURCE_REWARD) -> dict[str, str]:
    """Return, among names of metrics, those of this figure of a source's prompts, each with its source."""
    return {name: match[1] for name in names if (match := _SOURCE.fullmatch(name)) and match[2] == figure}


def share_of_prompts(kind: str) -> str:
    return f"prompts/share_{kind}"


def share_of_draws(kind: str) -> str:
    return f"prompts/draws_{kind}"


@dataclass(frozen=True)
class PromptsSpec:
    extra_rounds: int = 0
    """Maximum number of additional rounds per batch in which dynamic sampling replaces groups without spread by groups
    of new prompts; no round is larger than the batch. 0 if it is off."""
    spread_in: str = ""
    """The reward component whose spread is used; "" for the total reward."""
    by_difficulty: bool = False
    """True to draw prompts by what they have taught so far, rather than in epochs."""
    least_weight: float = 0.05
    """Weight of a prompt that has taught nothing, so that it is tried again now and then; the prompt that teaches most
    has 1. The weight is reduced if such prompts together would be drawn often."""

    @property
    def on(self) -> bool:
        return self.extra_rounds > 0 or self.by_difficulty


def problems(
    prompts: PromptsSpec, components: Sequence[str], episodes: EpisodeSpec | None, *, per_turn: bool
) -> Iterator[Problem]:
    """Yield the reasons why a run's prompts can't be selected this way. Fields are those of the New run page.

    `components`: names of the reward components that are trained on. `per_turn`: whether any of them scores each turn.
    """
    if not 0 <= prompts.extra_rounds <= MAX_ROUNDS:
        sentence = f"{prompts.extra_rounds} is not a valid number of extra rounds."
        yield Problem("extra_rounds", sentence, f"Choose 0 to {MAX_ROUNDS}; 0 turns dynamic sampling off.")
    if not 0 < prompts.least_weight <= 1:
        sentence = f"{prompts.least_weight:g} is not a valid minimum weight."
        yield Problem("least_weight", sentence, "Choose a value above 0 and at most 1.")
    if not prompts.on:
        return
    if prompts.spread_in and prompts.spread_in not in components:
        sentence = f"No component that is trained on is named {prompts.spread_in}, so its spread can't be used."
        yield Problem("spread_in", sentence, f"Use one of: {', '.join(components)}; or leave it empty.")
    obstacles = [
        *(["if a reward scores each turn"] if per_turn else []),
        *(["if programs drive the episodes"] if episodes and episodes.gateway else []),
    ]
    for obstacle in obstacles:
        field = "extra_rounds" if prompts.extra_rounds else "by_difficulty"
        sentence = f"Prompts can't be replaced or weighted {obstacle}."
        yield Problem(field, sentence, "Turn off dynamic sampling and drawing by difficulty.")
