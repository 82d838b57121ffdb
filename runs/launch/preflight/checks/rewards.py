"""Reward components: unique names, existing functions, valid parameters, available columns and secrets."""

from collections import Counter
from collections.abc import Iterator

from runs.launch.preflight.draft import DataFacts, Draft
from runs.launch.preflight.finding import Finding, stop, warn
from workers.contract.run.spec import RewardSpec
from workers.rewards.library import LIBRARY


def check(draft: Draft) -> Iterator[Finding]:
    if draft.rewards is None:
        yield stop("reward_version", "No reward config is chosen.", "Choose one, or create one under Rewards.")
        return
    if not draft.rewards:
        yield stop("reward_version", "The reward config has no components.", "Add a reward to it.")
        return
    for name, count in Counter(r.name for r in draft.rewards).items():
        if count > 1:
            yield stop(
                "reward_version",
                f"{count} rewards are called {name}; TRL would merge their metrics into one.",
                "Give each its own name.",
            )
    if all(r.weight == 0 for r in draft.rewards):
        yield stop("reward_version", "Every reward has weight 0, so every advantage is 0.", "Give one a weight.")
    for reward in draft.rewards:
        yield from _component(reward, draft.data, "reward_version")
    yield from _evaluations(draft)


def _evaluations(draft: Draft) -> Iterator[Finding]:
    if not draft.eval_rewards:
        return
    if not draft.eval_rows:
        cause = "Another reward config is chosen for evaluations, and the run makes none."
        yield warn("eval_reward_version", cause, "Set evaluation rows.")
        return
    trained_on = {reward.name for reward in draft.rewards or ()}
    if repeated := [reward.name for reward in draft.eval_rewards if reward.name in trained_on]:
        yield stop(
            "eval_reward_version",
            f"{', '.join(repeated)} is a component of both reward configs: their metrics would have the same name.",
            "Give the components other names in one of them.",
        )
    for reward in draft.eval_rewards:
        yield from _component(reward, draft.data, "eval_reward_version")


def _component(reward: RewardSpec, data: DataFacts | None, field: str) -> Iterator[Finding]:
    """Check one reward; `field`: the form's field in which its config was chosen."""
    entry = LIBRARY.get(reward.function)
    if entry is None:
        yield stop(field, f"{reward.name}: there is no reward {reward.function}.", "Replace it.")
        return
    if reward.per_turn and not entry.per_turn:
        cause = f"{reward.name} is to score each turn, and {entry.title} scores whole completions only."
        yield stop(field, cause, "Let it score the whole completion.")
    for problem in entry.check(reward.params):
        yield stop(field, f"{reward.name}: {problem}.", "Correct the reward config.")
    if data is None or not data.ready:
        return
    for column in entry.needs:
        present = data.has_answer if column == "answer" else column in data.columns
        if not present:
            yield stop(
                field,
                f"{reward.name} reads the column {column}, and {data.name} has none.",
                "Map that column in the dataset, or choose rewards that don't need it.",
            )
    if reward.weight < 0 and field == "reward_version":
        cause = f"{reward.name} has a negative weight: the run learns to avoid it."
        yield warn("reward_version", cause, "Change the sign if that isn't intended.")


def check_secrets(draft: Draft) -> Iterator[Finding]:
    for problem in draft.secrets.values():
        yield stop("reward_version", problem, "The run would be refused when it starts.")
