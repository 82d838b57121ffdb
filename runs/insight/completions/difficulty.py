"""A run's prompts by difficulty (never, sometimes or always solved), and the visits of one prompt over the run."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Count, F, Max, Q, QuerySet

from runs.engine.models import Run
from runs.engine.records import PromptProgress, SampleRow
from runs.insight.completions.progress import RECENT
from runs.insight.completions.reading import valid_groups

CLASSES = {"never": "Never solved", "sometimes": "Sometimes solved", "always": "Always solved"}
PERIODS = {"": f"Last {RECENT} visits", "run": "Whole run"}
"""Periods over which visits are counted -> their labels."""
ORDERS = {
    "": (("row",), "Row"),
    "share": (("share", "row"), "Least solved first"),
    "-share": (("-share", "row"), "Most solved first"),
    "gain": ((F("gain").desc(nulls_last=True), "row"), "Gained most"),
    "-gain": ((F("gain").asc(nulls_last=True), "row"), "Lost most"),
    "visits": (("-visits", "row"), "Visited most"),
}
_COUNTS = ("visits", "completions", "solved", "recent_completions", "recent_solved")
FIGURES = ("row", *_COUNTS, "first_solved_step", "first_mean", "last_mean", "best")
PROMPTS_PER_PAGE = 50
EXCERPT_CHARS = 200
MAX_CELLS = 100_000
"""Maximum number of cells in the difficulty map: smaller cells could not be pointed at."""


@dataclass(frozen=True)
class PromptChoice:
    """A selection of prompts by their class within a period and by a minimum number of visits."""

    classes: tuple[str, ...] = tuple(CLASSES)
    visits: int = 1
    period: str = ""

    def of(self, run: Run) -> QuerySet[PromptProgress]:
        condition = Q(pk__in=[])
        for name in self.classes:
            condition |= CONDITIONS[name]
        return prompts(run, self.period).filter(condition, visits__gte=self.visits)


CONDITIONS = {
    "never": Q(passed=0),
    "sometimes": Q(passed__gt=0, passed__lt=F("scored")),
    "always": Q(passed__gt=0, passed=F("scored")),
}


def prompts(run: Run, period: str = "run") -> QuerySet[PromptProgress]:
    """Return the prompts that have completions in the period, annotated with the number of completions (`scored`) and
    of solved completions (`passed`)."""
    prefix = "" if period else "recent_"
    with_completions = PromptProgress.objects.filter(run=run, **{f"{prefix}completions__gt": 0})
    annotated = with_completions.annotate(scored=F(f"{prefix}completions"), passed=F(f"{prefix}solved"))
    return annotated.annotate(share=F("passed") * 1.0 / F("scored"), gain=F("last_mean") - F("first_mean"))


def counts(run: Run, period: str) -> dict[str, int]:
    """Return the number of prompts in each class, of visited and unseen prompts, and of the dataset's rows."""
    parts = {name: Count("pk", filter=condition) for name, condition in CONDITIONS.items()}
    by_class: dict[str, int] = prompts(run, period).aggregate(visited=Count("pk"), **parts)
    data = run.spec.get("data") or {}
    rows = run.dataset_version.rows + sum(source["rows"] for source in data.get("sources") or [])
    return {**by_class, "rows": rows, "unseen": max(0, rows - by_class["visited"])}


def cells(run: Run, period: str) -> dict[str, list[int]]:
    """Return the difficulty map's data in dataset order. Only prompts never or always solved have 0 or 100 percent."""
    columns = ("row", "passed", "scored", "visits")
    prompt_rows = list(prompts(run, period).order_by("row").values_list(*columns)[:MAX_CELLS])
    return {
        "rows": [row for row, *_ in prompt_rows],
        "solved": [_solved_percent(solved, count) for _, solved, count, _ in prompt_rows],
        "visits": [visits if period else min(visits, RECENT) for *_, visits in prompt_rows],
    }


def page(run: Run, choice: PromptChoice, order: str, number: int) -> list[tuple[PromptProgress, str]]:
    """Return a page of prompts, each with an excerpt of its text, or "" if the text is no longer stored."""
    selected_prompts = list(
        choice.of(run).order_by(*ORDERS[order][0])[(number - 1) * PROMPTS_PER_PAGE : number * PROMPTS_PER_PAGE]
    )
    texts = excerpts(run, [prompt.row for prompt in selected_prompts])
    return [(prompt, texts.get(prompt.row, "")) for prompt in selected_prompts]


def excerpts(run: Run, rows: list[int]) -> dict[int, str]:
    with_texts = valid_groups(run).filter(row__in=rows, size__gt=0)
    newest_ids = with_texts.values("row").annotate(newest=Max("pk")).values_list("newest", flat=True)
    texts = SampleRow.objects.filter(pk__in=list(newest_ids)).values_list("row", "data__prompt")
    return {row: text[:EXCERPT_CHARS] for row, text in texts if row is not None and isinstance(text, str)}


def rows_to_export(run: Run, choice: PromptChoice) -> list[dict[str, Any]]:
    return list(choice.of(run).order_by("row").values(*FIGURES))


# --- one prompt ------------------------------------------------------------------------------------------------

MAX_VISITS = 400


@dataclass(frozen=True)
class Dot:
    """One visit in the chart, in chart units: 0 to 100 from left to right, 0 (best) to 100 from top to bottom."""

    pk: int
    step: int
    x: float
    top: float
    middle: float
    bottom: float
    solved: int
    count: int
    low: float
    mean: float
    high: float


def visits(run: Run, row: int) -> QuerySet[SampleRow]:
    return valid_groups(run).filter(row=row).order_by("step", "pk")


def whole_prompt(run: Run, row: int) -> dict[str, Any]:
    """Return the data of the newest visit that still has its texts, or {} if none has."""
    sample = valid_groups(run).filter(row=row, size__gt=0).order_by("-step", "-pk").first()
    return dict(sample.data) if sample else {}


def dots(run: Run, row: int) -> list[Dot]:
    columns = ("pk", "step", "solved", "completions", "reward_low", "reward_mean", "reward_high")
    visit_rows = list(visits(run, row).filter(reward_mean__isnull=False).values_list(*columns))
    visit_rows = visit_rows[:: -(-len(visit_rows) // MAX_VISITS) or 1]
    if not visit_rows:
        return []
    start, end = visit_rows[0][1], visit_rows[-1][1]
    low, high = min(visit[4] for visit in visit_rows), max(visit[6] for visit in visit_rows)

    def down(value: float) -> float:
        return round(100 * (high - value) / (high - low), 2) if high > low else 50.0

    return [
        Dot(
            pk, step, round(100 * (step - start) / (end - start), 2) if end > start else 50.0,
            down(h), down(m), down(lo), solved, count, lo, m, h,
        )
        for pk, step, solved, count, lo, m, h in visit_rows
    ]  # fmt: skip


def _solved_percent(solved: int, count: int) -> int:
    if solved in (0, count):
        return 100 * solved // count
    return min(99, max(1, round(100 * solved / count)))
