"""Reading stored completions: one step as a table, a search through all steps from the newest, one whole group."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.models import Max, Min, Q, QuerySet, Value
from django.db.models.functions import StrIndex

from runs.engine.models import Run
from runs.engine.records import SampleRow
from runs.insight.completions import episodes
from runs.insight.completions.episodes import StoredEpisode
from runs.insight.completions.filters import BROKEN_ENDS, ENDS, SHORT_ENDS, TRUNCATED_ENDS, CompletionFilter
from runs.insight.completions.groups import POLICY, StoredCompletion, between_lines, completions
from runs.insight.completions.solving import Solving, names
from runs.insight.completions.solving import of as solving_of

EXCERPT_CHARS = 400
CONTEXT_CHARS = 160
PAGE = 64
SEARCH_S = 0.5
"""Seconds for which one request searches older steps; the next request continues."""
BATCH = 50


@dataclass(frozen=True)
class CompletionRow:
    group: "GroupView"
    completion: StoredCompletion
    scores: list[tuple[str, float | None]]
    """Each component's (name, score), in the config's order, which determines the colours."""
    solved: bool
    before: str
    match: str
    after: str
    """The excerpt in three parts, of which a search highlights `match`."""

    @property
    def blank(self) -> str:
        """Placeholder for an empty excerpt, or "" if there is text."""
        if self.completion.text is None:
            return "not kept"
        if self.completion.turns or self.completion.text.strip():
            return ""
        return "whitespace only" if self.completion.text else "empty"

    @property
    def end(self) -> str:
        return ENDS.get(self.completion.end, self.completion.end[:24])

    @property
    def short_end(self) -> str:
        return SHORT_ENDS.get(self.completion.end, self.end)

    @property
    def end_level(self) -> str:
        """CSS class of the chip that shows the end, or "" for no chip."""
        return "warn" if self.completion.end in TRUNCATED_ENDS else "bad" if self.completion.end in BROKEN_ENDS else ""

    @property
    def episode(self) -> StoredEpisode | None:
        return episodes.read(self.completion.turns)


@dataclass(frozen=True)
class GroupView:
    pk: int
    step: int
    row: int | None
    mode: str
    prompt: str
    answer: str
    count: int
    solved: int
    flat: bool
    """True for a training group whose rewards are all equal, so nothing is learned from it."""
    has_texts: bool
    policy: int | None = None
    entries: list[CompletionRow] = field(default_factory=list)


@dataclass
class CompletionTable:
    groups: list[GroupView]
    shown: int = 0
    total: int | None = None
    """Number of matching completions, or None if a search stopped early or continued an earlier one."""
    pages: int = 1
    next_before: str = ""
    back_to: int | None = None


@dataclass(frozen=True)
class Steps:
    step: int | None = None
    newest: int | None = None
    """The newest training step, or the last step if there is none. It is shown unless another step is requested."""
    first: int | None = None
    last: int | None = None
    earlier: int | None = None
    later: int | None = None

    @property
    def follows(self) -> bool:
        return self.step == self.newest


def valid_groups(run: Run) -> QuerySet[SampleRow]:
    return SampleRow.objects.filter(run=run, superseded=False)


def from_source(rows: QuerySet[SampleRow], source: str) -> QuerySet[SampleRow]:
    """Return the groups whose prompts have this source or tag; "" for all groups."""
    if not source:
        return rows
    return rows.alias(position=StrIndex("sources", Value(between_lines(source)))).filter(position__gt=0)


def steps(run: Run, requested: int | None) -> Steps:
    """Find the requested step or, if it has no completions, the nearest earlier one with some, or else the first. If no
    step is requested, choose the newest training step."""
    rows = valid_groups(run)
    trained = Max("step", filter=Q(mode="train"))
    ends = rows.aggregate(first=Min("step"), last=Max("step"), trained=trained)
    if ends["last"] is None:
        return Steps()
    newest_step = ends["last"] if ends["trained"] is None else ends["trained"]
    nearest = newest_step if requested is None else rows.filter(step__lte=requested).aggregate(step=Max("step"))["step"]
    step = ends["first"] if nearest is None else nearest
    return Steps(
        step=step,
        newest=newest_step,
        first=ends["first"],
        last=ends["last"],
        earlier=rows.filter(step__lt=step).aggregate(step=Max("step"))["step"],
        later=rows.filter(step__gt=step).aggregate(step=Min("step"))["step"],
    )


def table(run: Run, step: int, query: CompletionFilter) -> CompletionTable:
    """Return a page of a step's completions. Without filter and sorting, only that page is read."""
    rows = _candidates(valid_groups(run).filter(step=step), query).order_by("attempt", "line")
    reader = CompletionReader(run)
    if not query.filtered and not query.sort:
        return _page_of_groups(rows, reader, query.page)
    entries = [entry for row in rows.iterator(BATCH) for entry in reader.entries(row, query)]
    if query.sort:
        entries = _sort_entries(entries, query.sort)
    page = entries[(query.page - 1) * PAGE :][:PAGE]
    pages = max(1, -(-len(entries) // PAGE))
    return CompletionTable(_group_entries(page), shown=len(page), total=len(entries), pages=pages)


def search(run: Run, query: CompletionFilter) -> CompletionTable:
    """Search all steps, newest first, for at most SEARCH_S seconds, and return the matches so far."""
    reader, until, cursor = CompletionReader(run), time.monotonic() + SEARCH_S, query.cursor()
    entries: list[CompletionRow] = []
    last_row: SampleRow | None = None
    for row in _newest_first(_candidates(valid_groups(run), query), cursor):
        if last_row is not None and (len(entries) >= PAGE or time.monotonic() > until):
            marker = f"{last_row.step}.{last_row.pk}"
            return CompletionTable(
                _group_entries(entries), shown=len(entries), next_before=marker, back_to=last_row.step
            )
        entries += reader.entries(row, query)
        last_row = row
    total = None if cursor else len(entries)
    return CompletionTable(
        _group_entries(entries), shown=len(entries), total=total, back_to=last_row.step if last_row else None
    )


class CompletionReader:
    def __init__(self, run: Run) -> None:
        self.names = names(run.spec)
        self.solving: Solving = solving_of(run.spec)

    def group(self, row: SampleRow) -> GroupView:
        data: dict[str, Any] = row.data
        prompt, answer = data.get("prompt"), data.get("answer")
        return GroupView(
            pk=row.pk,
            step=row.step,
            row=row.row,
            mode=row.mode,
            prompt=prompt if isinstance(prompt, str) else "",
            answer="" if answer is None else str(answer),
            count=row.completions,
            solved=row.solved,
            flat=row.mode == "train" and row.completions > 1 and None is not row.reward_low == row.reward_high,
            has_texts="completions" in data,
            policy=data[POLICY] if isinstance(data.get(POLICY), int) else None,
        )

    def entries(self, row: SampleRow, query: CompletionFilter) -> list[CompletionRow]:
        group, phrase = self.group(row), query.q.casefold()
        in_prompt = bool(phrase) and phrase in group.prompt.casefold()
        matches = []
        for completion in completions(row.data):
            value = completion.rewards.get(query.by) if query.by else completion.reward
            if not query.within(value) or not query.chooses(completion):
                continue
            if phrase and not in_prompt and phrase not in completion.full_text.casefold():
                continue
            matches.append(self.entry(group, completion, phrase))
        return matches

    def entry(self, group: GroupView, completion: StoredCompletion, phrase: str = "") -> CompletionRow:
        text = completion.text or ""
        if completion.turns and (not text.strip() or phrase):
            text = completion.full_text
        # Where case folding changes lengths (ß), a match is listed but not highlighted.
        match_start = text.lower().find(phrase) if phrase else -1
        if match_start < 0:
            match_start, phrase, text = 0, "", text.strip() or text
        start = max(0, match_start - CONTEXT_CHARS)
        end, excerpt_end = match_start + len(phrase), max(start + EXCERPT_CHARS, match_start + len(phrase))
        return CompletionRow(
            group=group,
            completion=completion,
            scores=[(name, completion.rewards.get(name)) for name in self.names],
            solved=self.solving.is_solved(completion.rewards),
            before=("…" if start else "") + text[start:match_start],
            match=text[match_start:end],
            after=text[end:excerpt_end] + ("…" if excerpt_end < len(text) else ""),
        )


def _candidates(rows: QuerySet[SampleRow], query: CompletionFilter) -> QuerySet[SampleRow]:
    """Skip groups from other sources, and those in which no completion can match the filter of the total reward."""
    rows = from_source(rows, query.source)
    if query.by:
        return rows
    if query.low is not None:
        rows = rows.filter(reward_high__gte=query.low)
    if query.high is not None:
        rows = rows.filter(reward_low__lte=query.high)
    return rows


def _page_of_groups(rows: QuerySet[SampleRow], reader: CompletionReader, page: int) -> CompletionTable:
    counts = list(rows.values_list("completions", flat=True))
    per_page = max(1, PAGE // max(1, *counts, 1))
    start = (page - 1) * per_page
    entries = [entry for row in rows[start : start + per_page] for entry in reader.entries(row, CompletionFilter())]
    return CompletionTable(
        _group_entries(entries), shown=len(entries), total=sum(counts), pages=max(1, -(-len(counts) // per_page))
    )


def _newest_first(rows: QuerySet[SampleRow], before: tuple[int, int] | None) -> Iterator[SampleRow]:
    """Yield rows, newest first, in batches so that no database cursor stays open."""
    while True:
        part = rows.order_by("-step", "-pk")
        if before:
            step, pk = before
            # The first condition is redundant, but lets the index start at the step.
            part = part.filter(step__lte=step).filter(Q(step__lt=step) | Q(pk__lt=pk))
        batch = list(part[:BATCH])
        yield from batch
        if len(batch) < BATCH:
            return
        before = batch[-1].step, batch[-1].pk


def _group_entries(entries: Iterable[CompletionRow]) -> list[GroupView]:
    groups: list[GroupView] = []
    for entry in entries:
        if not groups or groups[-1].pk != entry.group.pk:
            groups.append(replace(entry.group, entries=[]))
        groups[-1].entries.append(entry)
    return groups


def _sort_entries(entries: list[CompletionRow], sort: str) -> list[CompletionRow]:
    """Sort the entries. Those without a value come last in both directions."""
    name, sign = sort.lstrip("-"), -1 if sort.startswith("-") else 1

    def key(entry: CompletionRow) -> tuple[bool, float]:
        value = getattr(entry.completion, name)
        return value is None, 0.0 if value is None else sign * value

    return sorted(entries, key=key)
