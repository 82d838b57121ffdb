"""What evaluations have found, and a checkpoint's difference from the model that the run started with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from runs.engine.models import Run
from runs.engine.states import ACTIVE, RunStatus
from runs.insight.completions import groups, solving
from runs.insight.completions.reading import valid
from runs.insight.evaluations.starting import SetupKey, checkpoint_of, evaluations_of, setup_of

RESAMPLES = 2000
"""Of the bootstrap."""


@dataclass(frozen=True)
class Interval:
    """A mean difference with its 95 % confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """better | worse | unclear: the interval holds 0."""
        return "better" if self.low > 0 else "worse" if self.high < 0 else "unclear"


@dataclass(frozen=True)
class PromptResult:
    reward: float | None
    """The mean over its completions."""
    solved: int
    completions: int


@dataclass(frozen=True)
class EvaluationResult:
    run: Run
    folder: str
    """Of the checkpoint, relative to RUNS_DIR; "": the model that the evaluated run started with."""
    prompts: dict[int, PromptResult]
    """By row of the dataset."""
    pass_1: float | None
    """Share of completions that are solved; None if the rewards don't tell."""
    pass_k: float | None
    """Share of prompts with at least one solved completion: the unbiased estimate of pass@k (Chen et al. 2021,
    arXiv 2107.03374, equation 1) for as many samples as completions."""
    reward: float | None
    components: tuple[tuple[str, float | None], ...]
    tokens: float | None
    live: bool
    ended_well: bool
    gain: Interval | None = None
    """Of the mean reward over the base's, paired by prompt."""
    base: str = ""
    """The id of the base's evaluation."""

    @property
    def step(self) -> int | None:
        """None: the model that the evaluated run started with."""
        return int(self.folder.rpartition("-")[2]) if self.folder else None

    @property
    def merged(self) -> bool:
        """Whether its weights are those of a merge of the checkpoint."""
        return bool(self.folder) and not self.folder.startswith(f"{self.run.source_id}/")

    @property
    def setup(self) -> SetupKey:
        return setup_of(self.run)


def of_run(run: Run) -> list[EvaluationResult]:
    """All evaluations of a run: those of one setup side by side, the base first, then by step."""
    evaluations = evaluations_of(run).select_related("reward_version__config", "dataset_version__dataset")
    found = [_read(each) for each in evaluations.order_by("created_at")]
    bases = {each.setup: each for each in found if each.step is None and each.prompts and each.ended_well}
    compared = [_against(each, bases.get(each.setup)) for each in found]
    # As text: a setup whose rewards were deleted has no number to compare.
    steps = {each.run.pk: -1 if each.step is None else each.step for each in compared}
    return sorted(compared, key=lambda each: (str(each.setup), steps[each.run.pk], each.run.created_at))


def bootstrap(differences: Sequence[float]) -> Interval | None:
    """The mean of paired differences with the percentile bootstrap's 95 % interval over prompts (Efron 1979). The same
    differences give the same interval. None for fewer than two."""
    if len(differences) < 2:
        return None
    draw = random.Random(0)  # noqa: S311  # a resampling, not a secret
    means = sorted(fmean(draw.choices(differences, k=len(differences))) for _ in range(RESAMPLES))
    return Interval(fmean(differences), means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1])


def _read(evaluation: Run) -> EvaluationResult:
    solved = solving.of(evaluation.spec)
    rows = valid(evaluation).exclude(row=None)
    attempt = evaluation.latest()
    live = attempt.status in ACTIVE
    # The page is asked for every two seconds meanwhile: what each completion says is read once, at the end.
    every = [] if live else [one for data in rows.values_list("data", flat=True) for one in groups.completions(data)]
    columns = rows.values_list("row", "solved", "completions", "reward_mean")
    prompts = {row: PromptResult(mean, n, count) for row, n, count, mean in columns if row is not None}
    sampled = sum(each.completions for each in prompts.values())
    told = bool(solved.bounds) and sampled > 0
    return EvaluationResult(
        run=evaluation,
        folder=checkpoint_of(evaluation),
        prompts=prompts,
        pass_1=sum(each.solved for each in prompts.values()) / sampled if told else None,
        pass_k=fmean(each.solved > 0 for each in prompts.values()) if told else None,
        reward=_mean([one.reward for one in every]),
        components=tuple(
            (name, _mean([one.rewards.get(name) for one in every])) for name in solving.names(evaluation.spec)
        ),
        tokens=_mean([one.tokens for one in every]),
        live=live,
        ended_well=attempt.status == RunStatus.SUCCEEDED,
    )


def _against(one: EvaluationResult, base: EvaluationResult | None) -> EvaluationResult:
    if base is None or one.step is None or not one.ended_well:
        return one
    pairs = [(base.prompts[row], mine) for row, mine in one.prompts.items() if row in base.prompts]
    rewards = [
        mine.reward - other.reward for other, mine in pairs if mine.reward is not None and other.reward is not None
    ]
    return replace(one, base=base.run.pk, gain=bootstrap(rewards))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
