"""Results of a check: groups without spread, truncated and unscored completions, rewards, step time, and a verdict."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from runs.engine.models import Run
from runs.engine.spec import spec_of
from runs.insight.completions import groups, solving
from runs.insight.completions.groups import StoredCompletion
from runs.insight.completions.reading import valid_groups
from runs.insight.metrics.series import series
from runs.launch.new_run import past_runs
from runs.launch.preflight import duration
from workers.contract.run.batch_rules import Batch
from workers.contract.wire.names import reward_time

MAX_GROUPS_READ = 2048
"""Maximum number of groups to read; a check with huge generations has more."""
FLAT_BAD, FLAT_WARN = 0.9, 0.6
"""Shares of groups without spread at which nothing, or only little, can be learned."""
CUT_BAD, CUT_WARN = 0.5, 0.2
FAILED_BAD, FAILED_WARN = 0.5, 0.05
MAX_HARD_RATE, MIN_EASY_RATE = 0.1, 0.9
"""Mean solve rates at which groups have no spread because the prompts are too hard, or too easy."""
RATES = {
    "never": ("never solved", "c4"),
    "hard": ("under 20 %", "c3"),
    "fit": ("20 to 80 %", "c2"),
    "easy": ("over 80 %", "c1"),
    "always": ("always solved", "c8"),
}
"""Range of solve rates -> its label, and the colour of its segment."""


@dataclass(frozen=True)
class ComponentRange:
    """The scores of one reward over all completions."""

    name: str
    low: float | None
    mean: float | None
    high: float | None
    flat: float
    """Share of groups in which all scores of the reward are equal, 0 to 1."""
    failed: float
    """Share of completions without a score, 0 to 1; this includes those of rows that the reward doesn't apply to."""
    time_s: float | None = None
    """Seconds for a batch of completions on the first rank; None for a reward model, which TRL calls itself."""


@dataclass(frozen=True)
class LearnabilityVerdict:
    grade: str
    """Grade of the verdict: good, warn or bad."""
    text: str
    fix: str = ""


@dataclass(frozen=True)
class CheckResult:
    """The results of a check. Shares are 0 to 1; lengths are tokens, times are seconds."""

    groups: int = 0
    completions: int = 0
    flat: float = 0.0
    """Share of groups in which all rewards are equal, so every advantage is 0."""
    cut: float = 0.0
    """Share of completions truncated at max_completion_length."""
    mean_tokens: float | None = None
    solve_rate: float | None = None
    """Mean over all completions; None if no reward shows whether a completion is right."""
    rates: Mapping[str, int] = field(default_factory=dict)
    """Number of groups by range of solve rates, with the keys of RATES."""
    components: tuple[ComponentRange, ...] = ()
    step_s: float | None = None
    run_s: float | None = None
    """Seconds of the run that would be launched; None if the number or the time of its steps is unknown."""
    solving: str = ""
    """Sentence that says when a completion is solved."""

    @property
    def spread(self) -> float:
        return 1 - self.flat

    @property
    def rate_parts(self) -> list[dict[str, Any]]:
        return [
            {"label": label, "value": self.rates[name], "colour": colour}
            for name, (label, colour) in RATES.items()
            if self.rates.get(name)
        ]


def of_run(run: Run) -> CheckResult:
    """Compute the results from the groups stored so far. Raises ContractError for a spec of another version."""
    spec = spec_of(run)
    rule = solving.of(run.spec)
    rows = valid_groups(run).filter(mode="train").order_by("pk").values_list("data", "solved", "completions")
    sampled_groups = [
        (groups.completions(data), right_count, count) for data, right_count, count in rows[:MAX_GROUPS_READ]
    ]
    batch = Batch.of(spec.grpo, spec.hardware.processes)
    pace = duration.pace(past_runs.steps_of(run.pk, run.latest().pk), batch.steps_per_generated)
    step_s = pace.step_s if pace else None
    names = [reward.name for reward in spec.rewards]
    steps = spec.grpo.get("max_steps")
    return CheckResult(
        **_of_groups([group for group, _, _ in sampled_groups], names, _times(run, names)),
        solve_rate=_share(sum(n for _, n, _ in sampled_groups), sum(n for _, _, n in sampled_groups))
        if rule.bounds
        else None,
        rates=dict(Counter(_rate_range(n / count) for _, n, count in sampled_groups if count)) if rule.bounds else {},
        step_s=step_s,
        run_s=step_s * steps if step_s and isinstance(steps, int) and steps > 0 else None,
        solving=rule.sentence(),
    )


def _of_groups(
    sampled: Sequence[list[StoredCompletion]], names: Iterable[str], times: Mapping[str, float]
) -> dict[str, Any]:
    completions = [completion for group in sampled for completion in group]
    lengths = [completion.tokens for completion in completions if completion.tokens is not None]
    return {
        "groups": len(sampled),
        "completions": len(completions),
        "flat": _share(sum(_is_flat(completion.reward for completion in group) for group in sampled), len(sampled)),
        "cut": _share(sum(completion.end == "length" for completion in completions), len(completions)),
        "mean_tokens": fmean(lengths) if lengths else None,
        "components": tuple(_component(name, sampled, times.get(name)) for name in names),
    }


def _component(name: str, sampled: Sequence[list[StoredCompletion]], time_s: float | None) -> ComponentRange:
    by_group = [[completion.rewards.get(name) for completion in group] for group in sampled]
    completions = sum(map(len, by_group))
    valid_scores = [score for scores in by_group for score in scores if score is not None]
    return ComponentRange(
        name,
        low=min(valid_scores, default=None),
        mean=fmean(valid_scores) if valid_scores else None,
        high=max(valid_scores, default=None),
        flat=_share(sum(map(_is_flat, by_group)), len(by_group)),
        failed=_share(completions - len(valid_scores), completions),
        time_s=time_s,
    )


def _times(run: Run, names: Sequence[str]) -> dict[str, float]:
    """Average each reward's time for a batch, leaving out the first batch, which includes one-time work."""
    histories = series(run, [reward_time(name) for name in names], sys.maxsize)["series"]
    values = {name: histories[reward_time(name)]["value"] for name in names if reward_time(name) in histories}
    return {name: fmean(seconds[1:] or seconds) for name, seconds in values.items() if seconds}


def _is_flat(scores: Iterable[float | None]) -> bool:
    """Return whether a group teaches nothing because its scores are equal and TRL subtracts their mean."""
    valid_scores = [score for score in scores if score is not None]
    return not valid_scores or max(valid_scores) - min(valid_scores) < 1e-9


def _rate_range(share: float) -> str:
    if share in (0, 1):
        return "always" if share else "never"
    return "hard" if share < 0.2 else "easy" if share > 0.8 else "fit"


def _share(part: float, total: float) -> float:
    return part / total if total else 0.0


# --- the verdict ------------------------------------------------------------------------------------------------------


def verdict(result: CheckResult) -> LearnabilityVerdict:
    """Return the most serious finding, or a good verdict if there is none."""
    findings = list(_findings(result))
    worst_finding = next((finding for grade in ("bad", "warn") for finding in findings if finding.grade == grade), None)
    return worst_finding or LearnabilityVerdict(
        "good",
        f"The model can learn from this: in {result.spread:.0%} of the groups, the completions differ in reward.",
    )


def _findings(result: CheckResult) -> Iterator[LearnabilityVerdict]:
    if not result.groups:
        yield LearnabilityVerdict("bad", "No completion was sampled, so nothing is known.", "See the run's log.")
        return
    for component in result.components:
        if component.failed >= FAILED_WARN:
            yield LearnabilityVerdict(
                _grade(component.failed, FAILED_BAD),
                f"The reward {component.name} gave no score for {component.failed:.0%} of the completions.",
                "The run's events show its failures. Try it on these completions in the playground.",
            )
    if result.cut >= CUT_WARN:
        yield LearnabilityVerdict(
            _grade(result.cut, CUT_BAD),
            f"{result.cut:.0%} of the completions were truncated.",
            "Allow longer completions, or ask for shorter ones in the prompt.",
        )
    for component in result.components:
        if result.flat < FLAT_WARN and component.flat >= FLAT_BAD and component.low is not None:
            yield LearnabilityVerdict(
                "warn",
                f"In {component.flat:.0%} of the groups, the reward {component.name} is the same for every completion, "
                "so the model would learn only from the others.",
                "If this is the reward that matters, choose other prompts or make its scores finer-grained.",
            )
    if result.flat >= FLAT_WARN:
        yield LearnabilityVerdict(
            _grade(result.flat, FLAT_BAD),
            f"In {result.flat:.0%} of the groups, every completion got the same reward. Such a group teaches nothing.",
            _help_for_flat(result),
        )


def _help_for_flat(result: CheckResult) -> str:
    if result.solve_rate is not None and result.solve_rate <= MAX_HARD_RATE:
        return (
            "The model hardly ever solves a prompt. Choose easier prompts, add a reward for partial success, fine-tune "
            "on examples first, or sample more completions for each prompt."
        )
    if result.solve_rate is not None and result.solve_rate >= MIN_EASY_RATE:
        return "The model already solves nearly everything. Choose harder prompts."
    return (
        "Raise the temperature, sample more completions for each prompt, use a finer-grained reward, or let dynamic "
        "sampling replace such groups."
    )


def _grade(share: float, bad: float) -> str:
    return "bad" if share >= bad else "warn"
