"""Several runs' completions of the same prompts."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from django.db.models import Count, Max, Min, Q
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.platform.templatetags.figures import sig
from runs.engine.models import Run
from runs.engine.records import SampleRow
from runs.engine.sentences import counted
from runs.insight.comparing.comparison import part
from runs.insight.completions import episodes
from runs.insight.completions.filters import ENDS
from workers.contract.run.evaluation import EVALUATION

MAX_OFFERED = 500
DIFFERENT_DATA = "These runs used different dataset versions: the same row number may refer to different prompts."
VISITS = {"last": "Last visit", "first": "First visit"}


@dataclass(frozen=True)
class PromptAnswer:
    """A run's completions of a prompt at a visit; empty if there was no visit or the completions were deleted."""

    run: Run
    step: int | None = None
    visits: int = 0
    prompt: str = ""
    expected: str = ""
    completions: Sequence[dict[str, Any]] = ()
    mean: float | None = None

    @property
    def figures(self) -> str | SafeString:
        if self.step is None:
            return ""
        visits = f" · {self.visits} visits" if self.visits > 1 else ""
        template = "Step {} · mean reward <strong>{}</strong>{}"
        return format_html(template, sig(self.step, 7), sig(self.mean), visits)


def answers(runs: Sequence[Run], row: int | None, visit: str) -> dict[str, Any]:
    """Read each run's completions of the prompt of `row` (or of the first one available) at its first or last visit,
    and return the template context."""
    offers, by_all = offered_prompts(runs)
    rows = [offered_row for offered_row, _ in offers]
    row = row if row in rows else (rows[0] if rows else None)
    visit = visit if visit in VISITS else "last"
    per_run = [] if row is None else _answers(runs, row, visit)
    prompts = {(answer.prompt, answer.expected) for answer in per_run if answer.step is not None}
    # The prompt is shown once if it is the same for all runs.
    prompt, expected = prompts.pop() if len(prompts) == 1 else ("", "")
    extent = "No prompt was visited by all runs; these were visited by some"
    if by_all:
        extent = f"{counted(len(offers), 'prompt')} visited by all runs"
    return {
        "offers": offers,
        "row": row,
        "earlier": max((offer for offer in rows if row is not None and offer < row), default=None),
        "later": min((offer for offer in rows if row is not None and offer > row), default=None),
        "visit": visit,
        "extent": extent,
        "warning": "" if len({part(run.spec, "data").get("sha256") for run in runs}) == 1 else DIFFERENT_DATA,
        "prompt": prompt,
        "expected": expected,
        "answers": per_run,
    }


def offered_prompts(runs: Sequence[Run]) -> tuple[list[tuple[int, int]], bool]:
    """List the prompts that all runs visited or, if there are none, those that at least two visited, most shared first.
    Return each prompt as (dataset row, number of runs that visited it, or 0 if all did), and whether all runs visited
    them."""
    by_row = _groups(runs).values("row").annotate(runs=Count("run", distinct=True))
    shared_rows = by_row.filter(runs__gte=min(2, len(runs))).order_by("-runs", "row")
    offers = list(shared_rows.values_list("row", "runs")[:MAX_OFFERED])
    by_all = [(row, 0) for row, count in offers if count == len(runs)]
    return by_all or offers, bool(by_all)


def _answers(runs: Sequence[Run], row: int, visit: str) -> list[PromptAnswer]:
    steps = {"first": Min("step"), "last": Max("step")}[visit]
    visit_rows = _groups(runs).filter(row=row).values("run").annotate(at=steps, visits=Count("step", distinct=True))
    visits = {run: (visit_step, count) for run, visit_step, count in visit_rows.values_list("run", "at", "visits")}
    answers = []
    for run in runs:
        step, count = visits.get(run.pk, (None, 0))
        sample = (
            None if step is None else _groups([run]).filter(row=row, step=step).order_by("-attempt", "line").first()
        )
        answers.append(_answer(run, sample, count) if sample else PromptAnswer(run))
    return answers


def _answer(run: Run, sample: SampleRow, visits: int) -> PromptAnswer:
    data = sample.data
    completions = [completion for completion in data.get("completions") or () if isinstance(completion, dict)]
    with_reward = [completion for completion in completions if isinstance(completion.get("reward"), int | float)]
    with_reward.sort(key=lambda completion: -completion["reward"])
    without_reward = [completion for completion in completions if not isinstance(completion.get("reward"), int | float)]
    return PromptAnswer(
        run=run,
        step=sample.step,
        visits=visits,
        prompt=str(data.get("prompt") or ""),
        expected="" if data.get("answer") is None else str(data["answer"]),
        completions=[{**completion, **_episode_and_end(completion)} for completion in with_reward + without_reward],
        mean=fmean(completion["reward"] for completion in with_reward) if with_reward else None,
    )


def _episode_and_end(completion: dict[str, Any]) -> dict[str, Any]:
    """Return a completion's episode (None if it isn't one) and the labels that say how it ended."""
    messages, end = completion.get("turns"), completion.get("end")
    end_label = ENDS.get(end, end[:24]) if isinstance(end, str) else ""
    episode = episodes.read(messages) if isinstance(messages, list) else None
    was_truncated = completion.get("ended") is False and not episode
    return {"episode": episode, "end_label": end_label, "cut_label": (end_label or "cut") if was_truncated else ""}


def _groups(runs: Sequence[Run]) -> Any:
    """Find the groups that the runs were trained on or that an evaluation sampled."""
    was_trained_or_evaluated = Q(mode="train") | Q(run__kind=EVALUATION)
    return SampleRow.objects.filter(was_trained_or_evaluated, run__in=runs, row__isnull=False, superseded=False)
