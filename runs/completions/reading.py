"""Reads the stored completions: a step as a table, all steps searched newest first, one group whole."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Max, Min, Q, QuerySet

from runs.completions.filters import ENDS, CompletionFilter
from runs.completions.groups import StoredCompletion, completions
from runs.completions.solving import Solving, names
from runs.completions.solving import of as solving_of
from runs.models import Run, SampleRow

EXCERPT = 400
"""Characters of a completion in a table; the whole is one click away."""
AROUND = 160
"""Characters before the place that a search found."""
PROMPT_EXCERPT = 160
PAGE = 64
"""Completions on a page."""
SEARCH_S = 0.5
"""How long one request looks through older steps; the next goes on from there."""
CHUNK = 50


@dataclass(frozen=True)
class CompletionRow:
    """A completion as a row of a table."""

    group: GroupView
    one: StoredCompletion
    scores: list[tuple[str, float | None]]
    """Each component in the config's order, which gives its colour."""
    solved: bool
    before: str
    found: str
    after: str
    """The excerpt in three parts: a search marks the middle one."""

    @property
    def end(self) -> str:
        return ENDS.get(self.one.end, self.one.end[:24])


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
    """All of one reward: nothing is learnt from it."""
    kept: bool
    """It has its texts."""
    entries: list[CompletionRow] = field(default_factory=list)


@dataclass
class CompletionTable:
    groups: list[GroupView]
    """With `entries`; one that is split by the order comes several times."""
    shown: int = 0
    found: int | None = None
    """How many there are in all; None: not looked through to the end."""
    pages: int = 1
    next_before: str = ""
    back_to: int | None = None
    """The oldest step that was looked at."""


@dataclass(frozen=True)
class Steps:
    """Where a step lies among those that have completions."""

    step: int | None = None
    first: int | None = None
    last: int | None = None
    earlier: int | None = None
    later: int | None = None

    @property
    def newest(self) -> bool:
        return self.step == self.last


def valid(run: Run) -> QuerySet[SampleRow]:
    return SampleRow.objects.filter(run=run, superseded=False)


def steps(run: Run, asked: int | None) -> Steps:
    """Of a step that was asked for and has none, the one before it; without one asked for, the newest."""
    rows = valid(run)
    ends = rows.aggregate(first=Min("step"), last=Max("step"))
    if ends["last"] is None:
        return Steps()
    upto = rows.filter(step__lte=asked).aggregate(step=Max("step"))["step"] if asked is not None else ends["last"]
    step = ends["first"] if upto is None else upto
    return Steps(
        step=step,
        first=ends["first"],
        last=ends["last"],
        earlier=rows.filter(step__lt=step).aggregate(step=Max("step"))["step"],
        later=rows.filter(step__gt=step).aggregate(step=Min("step"))["step"],
    )


def table(run: Run, step: int, asked: CompletionFilter) -> CompletionTable:
    """A page of a step's completions. Without a filter and in the prompts' order only that page is read."""
    rows = _candidates(valid(run).filter(step=step), asked).order_by("attempt", "line")
    reader = CompletionReader(run)
    if not asked.filtered and not asked.sort:
        return _page_of_groups(rows, reader, asked)
    entries = [entry for row in rows.iterator(CHUNK) for entry in reader.entries(row, asked)]
    if asked.sort:
        entries = _sorted(entries, asked.sort)
    start = (asked.page - 1) * PAGE
    page = entries[start : start + PAGE]
    pages = max(1, -(-len(entries) // PAGE))
    return CompletionTable(_together(page), shown=len(page), found=len(entries), pages=pages)


def search(run: Run, asked: CompletionFilter) -> CompletionTable:
    """All steps, newest first, for as long as one request may take."""
    reader, until, cursor = CompletionReader(run), time.monotonic() + SEARCH_S, asked.cursor()
    entries: list[CompletionRow] = []
    last: SampleRow | None = None
    for row in _newest_first(_candidates(valid(run), asked), cursor):
        if last is not None and (len(entries) >= PAGE or time.monotonic() > until):
            return CompletionTable(
                _together(entries), shown=len(entries), next_before=f"{last.step}.{last.pk}", back_to=last.step
            )
        entries += reader.entries(row, asked)
        last = row
    found = None if cursor else len(entries)
    return CompletionTable(_together(entries), shown=len(entries), found=found, back_to=last.step if last else None)


class CompletionReader:
    """Rows of one run as groups and entries."""

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
            flat=row.completions > 1 and row.reward_low is not None and row.reward_low == row.reward_high,
            kept="completions" in data,
        )

    def entries(self, row: SampleRow, asked: CompletionFilter) -> list[CompletionRow]:
        """The row's completions that were asked for."""
        group, wanted = self.group(row), asked.q.casefold()
        in_prompt = bool(wanted) and wanted in group.prompt.casefold()
        chosen = []
        for one in completions(row.data):
            value = one.rewards.get(asked.by) if asked.by else one.reward
            if not asked.within(value) or (asked.end and one.end != asked.end):
                continue
            text = one.text or ""
            if wanted and not in_prompt and wanted not in text.casefold():
                continue
            chosen.append(self.entry(group, one, wanted))
        return chosen

    def entry(self, group: GroupView, one: StoredCompletion, wanted: str = "") -> CompletionRow:
        text = one.text or ""
        # Where folding moves places (ß), a match is found but not marked.
        at = text.lower().find(wanted) if wanted else -1
        if at < 0:
            at, wanted, text = 0, "", text.strip() or text
        start = max(0, at - AROUND)
        end, upto = at + len(wanted), max(start + EXCERPT, at + len(wanted))
        return CompletionRow(
            group=group,
            one=one,
            scores=[(name, one.rewards.get(name)) for name in self.names],
            solved=self.solving.solved(one.rewards),
            before=("…" if start else "") + text[start:at],
            found=text[at:end],
            after=text[end:upto] + ("…" if upto < len(text) else ""),
        )


def _candidates(rows: QuerySet[SampleRow], asked: CompletionFilter) -> QuerySet[SampleRow]:
    """By the columns first: groups in which no completion can have the total reward are not read."""
    if asked.by:
        return rows
    if asked.low is not None:
        rows = rows.filter(reward_high__gte=asked.low)
    if asked.high is not None:
        rows = rows.filter(reward_low__lte=asked.high)
    return rows


def _page_of_groups(rows: QuerySet[SampleRow], reader: CompletionReader, asked: CompletionFilter) -> CompletionTable:
    counts = list(rows.values_list("completions", flat=True))
    a_page = max(1, PAGE // max(1, *counts, 1))
    start = (asked.page - 1) * a_page
    entries = [entry for row in rows[start : start + a_page] for entry in reader.entries(row, asked)]
    return CompletionTable(
        _together(entries), shown=len(entries), found=sum(counts), pages=max(1, -(-len(counts) // a_page))
    )


def _newest_first(rows: QuerySet[SampleRow], before: tuple[int, int] | None) -> Iterator[SampleRow]:
    """Read as they are needed, each part from where the last ended, with no cursor left open."""
    while True:
        part = rows.order_by("-step", "-pk")
        if before:
            step, pk = before
            # The first condition says nothing new, but lets the index begin at the step.
            part = part.filter(step__lte=step).filter(Q(step__lt=step) | Q(pk__lt=pk))
        some = list(part[:CHUNK])
        yield from some
        if len(some) < CHUNK:
            return
        before = some[-1].step, some[-1].pk


def _together(entries: Iterable[CompletionRow]) -> list[GroupView]:
    """Neighbours of one group under one head."""
    groups: list[GroupView] = []
    for entry in entries:
        if not groups or groups[-1].pk != entry.group.pk:
            groups.append(GroupView(**{**entry.group.__dict__, "entries": []}))
        groups[-1].entries.append(entry)
    return groups


def _sorted(entries: list[CompletionRow], sort: str) -> list[CompletionRow]:
    """What has no such figure comes last, either way."""
    name, sign = sort.lstrip("-"), -1 if sort.startswith("-") else 1

    def key(entry: CompletionRow) -> tuple[bool, float]:
        value = getattr(entry.one, name)
        return value is None, 0.0 if value is None else sign * value

    return sorted(entries, key=key)
