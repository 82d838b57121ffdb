"""Checks of reward components: unique names, known functions, valid parameters, available columns and secrets."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence

from controlplane.catalogue.versioned import checking
from controlplane.platform.confined.limits import NotFinished
from runs.launch.preflight.draft import DataFacts, Draft
from runs.launch.preflight.finding import Finding, stop, unjudged, warn
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
        for data in draft.every_data or (None,):
            yield from _component(reward, data, "reward_version")
        yield from _opened_tag(reward, draft, "reward_version")
    for data in (mixed_data for mixed_data, _ in draft.mix) if draft.mix else (draft.data,):
        yield from _other_tests(draft.rewards, data, "reward_version")
    yield from _evaluations(draft)


def _evaluations(draft: Draft) -> Iterator[Finding]:
    if not draft.eval_rewards:
        return
    if not draft.eval_rows:
        cause = "A second reward config is chosen for evaluations, but the run makes none."
        yield warn("eval_reward_version", cause, "Set Evaluation rows to more than 0.")
        return
    trained_on = {reward.name for reward in draft.rewards or ()}
    if repeated_names := [reward.name for reward in draft.eval_rewards if reward.name in trained_on]:
        yield stop(
            "eval_reward_version",
            f"Both reward configs have {', '.join(repeated_names)}, so their metrics would have the same name.",
            "Rename these components in one of the configs.",
        )
    for reward in draft.eval_rewards:
        yield from _component(reward, draft.data, "eval_reward_version")
        yield from _opened_tag(reward, draft, "eval_reward_version")
    yield from _other_tests(draft.eval_rewards, draft.data, "eval_reward_version")


def _component(reward: RewardSpec, data: DataFacts | None, field: str) -> Iterator[Finding]:
    """Check one reward. `field` is the form field in which its config was chosen."""
    entry = LIBRARY.get(reward.function)
    if entry is None:
        yield stop(field, f"{reward.name}: there is no reward {reward.function}.", "Replace this component.")
        return
    if reward.per_turn and not entry.per_turn:
        cause = f"{reward.name} is set to score each turn, but {entry.title} scores only whole completions."
        yield stop(field, cause, "Let it score whole completions.")
    try:
        for problem in checking.problems(entry, reward.params):
            yield stop(field, f"{reward.name}: {problem}.", "Correct the reward config.")
    except NotFinished as error:
        yield unjudged(field, reward.name, error)
    if data is None or not data.ready or data.applies(reward) is False:
        return
    for column in entry.needs:
        has_column = data.has_answer if column == "answer" else column in data.columns
        if not has_column:
            yield (warn if data.applies(reward) is None else stop)(
                field,
                f"{reward.name} reads the column {column}, which {data.name} doesn't have.",
                "Map that column in the dataset, or choose rewards that don't need it.",
            )
    if reward.weight < 0 and field == "reward_version":
        cause = f"{reward.name} has a negative weight, so the run learns to avoid it."
        yield warn("reward_version", cause, "Change the sign unless that is intended.")


def _other_tests(rewards: Sequence[RewardSpec], data: DataFacts | None, field: str) -> Iterator[Finding]:
    """Warn of rewards for tests that rows have in the other kind, which they leave without a score."""
    if data is None or data.python_tests is None or data.io_tests is None:
        return
    used = {reward.function: reward.name for reward in rewards}
    kinds = (
        ("tests_passed", "input_output_tests", data.io_tests, "input/output tests"),
        ("input_output_tests", "tests_passed", data.python_tests, "tests in Python"),
    )
    for function, other, count, kind in kinds:
        if count and function in used and other not in used:
            cause = f"{used[function]} gives no score to the {count:,} rows of {data.name} with {kind}."
            yield warn(field, cause, f"Add or use “{LIBRARY[other].title}” in the reward config.")


ALWAYS_OPENS = {"trl_think_format": "think"}
"""Rewards that need an opening tag in the completion, without a parameter for one in the prompt -> the tag."""


def _opened_tag(reward: RewardSpec, draft: Draft, field: str) -> Iterator[Finding]:
    """Warn of a reward that expects the opening tag which the chat template writes at the end of each prompt."""
    tag, entry = (draft.inspection or {}).get("prompt_opens"), LIBRARY.get(reward.function)
    arguments = draft.value("chat_template_kwargs")
    thinks = not isinstance(arguments, dict) or arguments.get("enable_thinking", True)
    if not tag or entry is None or not (draft.data and draft.data.chat) or not thinks:
        return
    params = {parameter.name: parameter.default for parameter in dataclasses.fields(entry.params)} | reward.params
    expected = ALWAYS_OPENS.get(reward.function) or str(params.get("tag") or params.get("tags") or "").split(",")[0]
    if expected.strip() != tag:
        return
    cause = f"The model's chat template writes <{tag}> at the end of the prompt, so completions don't begin with it: "
    if reward.function in ALWAYS_OPENS:
        fix = "Use “Think block, strict” with “opened by prompt” on instead."
        yield warn(field, f"{cause}{reward.name} gives 0 to all of them.", fix)
    elif params.get("opened_by_prompt") is False:
        fix = "Turn “opened by prompt” on for this component in the reward config."
        yield warn(field, f"{cause}{reward.name} scores well-formed ones as if the tag were missing.", fix)


def check_secrets(draft: Draft) -> Iterator[Finding]:
    for problem in draft.secrets.values():
        yield stop("reward_version", problem, "Correct the secret, or the run is refused when it starts.")
