"""Health rules about rewards: progress, components, groups."""

from runs.insight.health.config import Config
from runs.insight.health.judging.rule import AXOLOTL, DECAY, DIVERGENCE, MISMATCH, OWN, HealthRule, share_rule


def _no_top(config: Config) -> str:
    return "" if config.highest is not None else "The maximum reward is unknown: a component has no upper bound."


def _one_component(config: Config) -> str:
    return "" if len(config.components) > 1 else "The run has only one reward component."


RULES: dict[str, HealthRule] = {
    "reward_stuck": HealthRule(
        title="Reward stuck",
        about="Steps so far, if the reward shows no trend beyond two standard errors; for runs with fewer than 900 "
        "steps, bounds shrink in proportion, down to a third",
        warning=300,
        bad=1000,
        hold=20,
        scale=lambda config: config.patience,
        format="steps",
        source=f"The thresholds are {OWN}: with hard tasks and a warm-up, it takes a few hundred steps.",
        means="After {step} steps the reward has changed by {gain}, which may be chance.",
        try_="Try the reward on completions in the playground; raise the learning rate; use easier prompts or more "
        "generations.",
        metric="reward",
        follows=(
            "lr_zero",
            "not_finite",
            "grad_zero",
            "component_low",
            "component_failing",
            *MISMATCH,
            "stale",
            "reward_noise",
            "zero_spread",
            "component_falling",
            "components",
            "truncation",
        ),
        field="learning_rate",
        read=True,
    ),
    "reward_falling": HealthRule(
        title="Reward falling",
        about="Share of the reward's best gain that is lost (mean over 20 generations)",
        warning=0.4,
        bad=0.7,
        format="percent",
        source=f"The thresholds are {OWN}; chance and small changes are ignored.",
        means="The reward is {now}, down from {best} at step {best_step}: {lost}.{how}",
        try_="Read the completions since then. Go back to a checkpoint near step {best_step}; {lower_rate}, or "
        "{higher_beta}.",
        metric="reward",
        follows=("scorer_changed", *DIVERGENCE, *DECAY, "component_failing"),
        field="learning_rate",
        read=True,
    ),
    "reward_saturated": share_rule(
        title="Reward at its maximum",
        about="Mean reward over 20 generations, as a share of the maximum that its components allow",
        mild="note",
        warning=0.97,
        hold=20,
        means="The reward is at {value} of its maximum: there is little left to learn from this data.",
        try_="Stop here, or continue with harder prompts.",
        metric="reward",
        unless=_no_top,
    ),
    "component_low": HealthRule(
        title="Reward component near 0",
        about="Mean of the lowest component over 20 generations (among components whose range starts at 0); 500 "
        "completions at 0 are enough",
        above=False,
        warning=0.001,
        hold=30,
        minimum=-1e6,
        source=f"{AXOLOTL}: a component that stays at 0 is broken or too hard; it expects 0.15 within 20 steps.",
        means="{component} scores {value}: {why}.",
        try_="Try the component on real completions in the playground; give partial credit for partly correct answers.",
        metric="{metric}",
        follows=(
            "scorer_changed",
            "component_failing",
            "component_falling",
            "reward_falling",
            "components",
            *DIVERGENCE,
            *DECAY,
        ),
        read=True,
    ),
    "component_falling": HealthRule(
        title="Reward component falling",
        about="Share of the component's best gain that is lost (mean over 20 generations)",
        warning=0.6,
        format="percent",
        source=f"The threshold is {OWN}; chance and small changes are ignored.",
        means="{component} scores {now}, down from {best} at step {best_step}: {lost}.",
        try_="Check which component rose in the same period, and read the completions since then. If {component} "
        "matters, raise its weight.",
        metric="{metric}",
        unless=_one_component,
        follows=("scorer_changed", "reward_falling", "components", "component_failing", *DIVERGENCE, *DECAY),
        read=True,
    ),
    "zero_spread": share_rule(
        title="Zero-variance groups",
        about="Share of training completions in groups whose rewards are all equal, mean over 20 generations",
        warning=0.8,
        bad=0.98,
        source=f"{AXOLOTL}: below 0.8 is fine; 1.0 at every step means no learning.",
        hold_bad=100,
        means="In {value} of the training groups all completions got the same reward, so nothing is learned from them: "
        "{why}.",
        try_="Read a group’s completions: if they are identical, raise the temperature and remove the fixed seed. If "
        "not, use easier or harder prompts, more generations, a finer reward or dynamic sampling.",
        solved="In {value} of the groups all rewards are equal because the reward is near its maximum: the prompts are "
        "learned.",
        metric="frac_reward_zero_std",
        drawn=True,
        follows=(
            "identical",
            "scorer_changed",
            "component_low",
            "reward_falling",
            "component_falling",
            "reward_noise",
            "entropy",
            *DECAY,
        ),
    ),
    "components": HealthRule(
        title="One component rises, another falls",
        about="Share of its range that a component has lost while another one rose",
        warning=0.1,
        bad=0.3,
        calm=100,
        format="percent",
        source=f"The thresholds are {OWN}: both changes must be far beyond chance.",
        means="{rising} is rising while {falling} has lost {value} of its range: {why}.",
        try_="Read completions that {rising} rewards and {falling} does not; change the weights or close the loophole.",
        metric="reward",
        unless=_one_component,
        follows=("scorer_changed", "reward_falling", "component_failing", *DIVERGENCE, *DECAY),
        read=True,
    ),
    "component_stuck": HealthRule(
        title="Component stuck while the total rises",
        about="Steps so far, if a component that checks answers stays low without a trend although the total has risen",
        warning=300,
        hold=20,
        scale=lambda config: config.patience,
        format="steps",
        source=f"The threshold is {OWN}; it shrinks in proportion for runs with fewer than 900 steps.",
        means="The reward has risen, but {component} stays at {now}: the model is learning to score without it.",
        try_="Use easier prompts, give partial credit in {component}, or lower the other components’ weights.",
        metric="reward",
        unless=_one_component,
        follows=("component_failing", "component_low", "length_rewarded", "components", "component_falling"),
    ),
    "component_failing": share_rule(
        title="Reward component fails",
        about="Share of completions on which a component fails, mean over 10 generations (for the component that fails "
        "most often)",
        warning=0.1,
        bad=0.4,
        hold=5,
        source=f"The thresholds are {OWN}; above its own limit, the run ends.",
        means="{component} fails on {value} of the completions, which then have no score from it.",
        try_="Read the failures in the timeline and the trainer’s log; try the component in the playground.",
        logs=True,
        metric="{metric}",
    ),
    "reward_noise": share_rule(
        title="Rewards differ only by noise",
        about="Standard deviation of rewards within groups whose rewards differ, as a share of the reward's range, "
        "mean over 20 generations",
        above=False,
        warning=0.01,
        means="Rewards within a group differ by {value} of their range: advantages magnify tiny differences.",
        try_="Round the rewards, or make them finer where it matters. With scale_rewards none, small differences stay "
        "small.",
        solved="Rewards within a group differ by {value} of their range, with the reward near its maximum.",
        metric="reward_std",
        unless=_no_top,
    ),
    "eval_falling": HealthRule(
        title="Validation reward falling",
        about="Share of the validation reward’s best gain that is lost, while the training reward has not dropped",
        warning=0.3,
        bad=0.7,
        hold=0,
        calm=1,
        format="percent",
        source=f"The thresholds are {OWN}; chance is ignored.",
        means="The validation reward is {now}, down from {best} at step {best_step}, although the training reward has "
        "not dropped: the policy is memorizing its prompts or gaming the reward.",
        try_="Go back to the checkpoint near step {best_step}. Use more prompts, fewer epochs, or a higher β.",
        metric="eval_reward",
        follows=("scorer_changed", "reward_falling", "component_falling", "components", *DIVERGENCE, *DECAY),
        unless=lambda config: "" if config.eval_every else "The run does not evaluate on held-out rows.",
    ),
    "solved_falling": HealthRule(
        title="Fewer solved while the total rises",
        about="Share of the best gain in solved completions that is lost, while the reward has not dropped",
        warning=0.3,
        hold=0,
        calm=1,
        format="percent",
        source=f"The threshold is {OWN}; chance is ignored.",
        means="The solved share is {now}, down from {best} at step {best_step}, although the reward has not dropped: "
        "the policy is earning reward for something else.",
        try_="Check which component rose in the same period, read completions from before and after, and lower that "
        "component’s weight.",
        metric="reward",
        unless=_no_top,
        follows=("components", "component_falling", "reward_falling", "eval_falling", *DIVERGENCE, *DECAY),
        read=True,
    ),
}
