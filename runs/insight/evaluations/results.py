"""Results of evaluations, and each checkpoint's difference from the run's starting model."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import fmean

from runs.engine.models import Run
from runs.engine.states import ACTIVE, RunStatus
from runs.insight.completions import groups, solving
from runs.insight.completions.reading import valid_groups
from runs.insight.evaluations.starting import SetupKey, checkpoint_of, evaluations_of, setup_of

RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A mean difference with its 95% confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """`better` or `worse`, or `unclear` if the interval contains 0."""
        return "better" if self.low > 0 else "worse" if self.high < 0 else "unclear"


@dataclass(frozen=True)
class PromptResult:
    reward: float | None
    solved: int
    completions: int


@dataclass(frozen=True)
class EvaluationResult:
    run: Run
    folder: str
    """The checkpoint's folder relative to RUNS_DIR, or "" for the evaluated run's starting model."""
    prompts: dict[int, PromptResult]
    pass_1: float | None
    """Share of solved completions; None if the rewards don't define when a completion is solved."""
    pass_k: float | None
    """Share of prompts with at least one solved completion. This is the unbiased estimate of pass@k (Chen et al. 2021,
    arXiv 2107.03374, equation 1) where k is the number of completions per prompt."""
    reward: float | None
    components: tuple[tuple[str, float | None], ...]
    tokens: float | None
    live: bool
    ended_well: bool
    gain: Interval | None = None
    """The difference in mean reward from the starting model, paired by prompt."""
    base: str = ""

    @property
    def step(self) -> int | None:
        """The checkpoint's step, or None for the evaluated run's starting model."""
        return int(self.folder.rpartition("-")[2]) if self.folder else None

    @property
    def merged(self) -> bool:
        return bool(self.folder) and not self.folder.startswith(f"{self.run.source_id}/")

    @property
    def setup(self) -> SetupKey:
        return setup_of(self.run)


def of_run(run: Run) -> list[EvaluationResult]:
    """Return all evaluations of a run, grouped by setup: the starting model first, then checkpoints by step."""
    evaluations = evaluations_of(run).select_related("reward_version__config", "dataset_version__dataset")
    results = [_read_result(evaluation) for evaluation in evaluations.order_by("created_at")]
    bases = {result.setup: result for result in results if result.step is None and result.prompts and result.ended_well}
    return sorted((_with_gain(result, bases.get(result.setup)) for result in results), key=_order)


def _order(result: EvaluationResult) -> tuple[str, int, datetime]:
    # The setup as a string, since a setup whose rewards were deleted has None instead of a number.
    return str(result.setup), -1 if result.step is None else result.step, result.run.created_at


def bootstrap(differences: Sequence[float]) -> Interval | None:
    """Return the mean of at least two paired differences with a reproducible 95% percentile bootstrap interval."""
    if len(differences) < 2:
        return None
    rng = random.Random(0)  # noqa: S311  # for resampling, not for secrets
    means = sorted(fmean(rng.choices(differences, k=len(differences))) for _ in range(RESAMPLES))
    return Interval(fmean(differences), means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1])


def _read_result(evaluation: Run) -> EvaluationResult:
    rule = solving.of(evaluation.spec)
    rows = valid_groups(evaluation).exclude(row=None)
    attempt = evaluation.latest()
    is_live = attempt.status in ACTIVE
    # The page of a live evaluation polls every two seconds, so completions are read only once it has ended.
    stored_groups = () if is_live else rows.values_list("data", flat=True)
    completions = [completion for data in stored_groups for completion in groups.completions(data)]
    columns = rows.values_list("row", "solved", "completions", "reward_mean")
    prompts = {row: PromptResult(mean, n, count) for row, n, count, mean in columns if row is not None}
    sampled_count = sum(prompt.completions for prompt in prompts.values())
    is_countable = bool(rule.bounds) and sampled_count > 0
    return EvaluationResult(
        run=evaluation,
        folder=checkpoint_of(evaluation),
        prompts=prompts,
        pass_1=sum(prompt.solved for prompt in prompts.values()) / sampled_count if is_countable else None,
        pass_k=fmean(prompt.solved > 0 for prompt in prompts.values()) if is_countable else None,
        reward=_mean([completion.reward for completion in completions]),
        components=tuple(
            (name, _mean([completion.rewards.get(name) for completion in completions]))
            for name in solving.names(evaluation.spec)
        ),
        tokens=_mean([completion.tokens for completion in completions]),
        live=is_live,
        ended_well=attempt.status == RunStatus.SUCCEEDED,
    )


def _with_gain(result: EvaluationResult, base: EvaluationResult | None) -> EvaluationResult:
    if base is None or result.step is None or not result.ended_well:
        return result
    pairs = [
        (base.prompts[row], checkpoint_result)
        for row, checkpoint_result in result.prompts.items()
        if row in base.prompts
    ]
    rewards = [(base_result.reward, checkpoint_result.reward) for base_result, checkpoint_result in pairs]
    differences = [
        checkpoint_result - base_result
        for base_result, checkpoint_result in rewards
        if checkpoint_result is not None and base_result is not None
    ]
    return replace(result, base=base.run.pk, gain=bootstrap(differences))


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None
