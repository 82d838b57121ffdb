"""Checks of reward components: unique names, known functions, valid parameters, available columns and secrets."""

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
        yield stop("reward_version", "The reward config has no components.", "Add a reward to the config.")
        return
    for name, count in Counter(r.name for r in draft.rewards).items():
        if count > 1:
            yield stop(
                "reward_version",
                f"{count} rewards are called {name}; TRL would merge their metrics into one.",
                "Give each a different name.",
            )
    if all(r.weight == 0 for r in draft.rewards):
        yield stop("reward_version", "Every reward has weight 0, so every advantage is 0.", "Give a reward a weight.")
    for reward in draft.rewards:
        yield from _component(reward, draft.data, "reward_version")
    yield from _evaluations(draft)


def _evaluations(draft: Draft) -> Iterator[Finding]:
    if not draft.eval_rewards:
        return
    if not draft.eval_rows:
        cause = "A second reward config is chosen for evaluations, but the run makes none."
        yield warn("eval_reward_version", cause, "Set Evaluation rows to more than 0.")
        return
    trained_on = {reward.name for reward in draft.rewards or ()}
    if repeated := [reward.name for reward in draft.eval_rewards if reward.name in trained_on]:
        yield stop(
            "eval_reward_version",
            f"Both reward configs have {', '.join(repeated)}, so their metrics would have the same name.",
            "Rename these components in one of the configs.",
        )
    for reward in draft.eval_rewards:
        yield from _component(reward, draft.data, "eval_reward_version")


def _component(reward: RewardSpec, data: DataFacts | None, field: str) -> Iterator[Finding]:
    """Check one reward. `field` is the form field in which its config was chosen."""
    entry = LIBRARY.get(reward.function)
    if entry is None:
        yield stop(field, f"{reward.name}: there is no reward {reward.function}.", "Replace this component.")
        return
    if reward.per_turn and not entry.per_turn:
        cause = f"{reward.name} is set to score each turn, but {entry.title} scores only whole completions."
        yield stop(field, cause, "Let it score whole completions.")
    for problem in entry.check(reward.params):
        yield stop(field, f"{reward.name}: {problem}.", "Correct the reward config.")
    if data is None or not data.ready:
        return
    for column in entry.needs:
        present = data.has_answer if column == "answer" else column in data.columns
        if not present:
            yield stop(
                field,
                f"{reward.name} reads the column {column}, which {data.name} doesn't have.",
                "Map that column in the dataset, or choose rewards that don't need it.",
            )
    if reward.weight < 0 and field == "reward_version":
        cause = f"{reward.name} has a negative weight, so the run learns to avoid it."
        yield warn("reward_version", cause, "Change the sign unless that is intended.")


def check_secrets(draft: Draft) -> Iterator[Finding]:
    for problem in draft.secrets.values():
        yield stop("reward_version", problem, "Correct the secret, or the run is refused when it starts.")
