"""The filter of the completions tab: parsed from a query string, and written into the page's links."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from urllib.parse import urlencode

from django.http import QueryDict

PREFIX = "s."
"""Prefix of the tab's parameters in the run page's address."""
ENDS = {
    "eos": "ended normally",
    "length": "cut at the length limit",
    "stop": "ended at a stop word",
    "tools": "out of tool calls",
}
SORTS = {
    "": "Prompt",
    "-reward": "Reward, highest first",
    "reward": "Reward, lowest first",
    "-advantage": "Advantage, highest first",
    "advantage": "Advantage, lowest first",
    "-tokens": "Longest first",
    "tokens": "Shortest first",
}
MOST_TEXT = 200


@dataclass(frozen=True)
class CompletionFilter:
    """Invalid values are ignored. `filtered`: whether any condition limits the completions."""

    step: int | None = None
    every: bool = False
    """All steps, newest first, instead of one."""
    q: str = ""
    by: str = ""
    """The component that `low` and `high` refer to; empty: the total reward."""
    low: float | None = None
    high: float | None = None
    end: str = ""
    sort: str = ""
    page: int = 1
    before: str = ""
    """With `every`: the group (step.id) before which the search continues."""

    @property
    def ranged(self) -> bool:
        return self.low is not None or self.high is not None

    @property
    def filtered(self) -> bool:
        return bool(self.q or self.end) or self.ranged

    def within(self, value: float | None) -> bool:
        if not self.ranged:
            return True
        low, high = self.low, self.high
        return value is not None and (low is None or value >= low) and (high is None or value <= high)

    def cursor(self) -> tuple[int, int] | None:
        step, _, pk = self.before.partition(".")
        return (int(step), int(pk)) if step.isdecimal() and pk.isdecimal() else None

    def link(self, **changes: object) -> str:
        """The run page's query string with changes; returns to the first page unless a page is given."""
        changed = replace(self, **{"page": 1, "before": "", **changes})  # type: ignore[arg-type]
        parameters = [(PREFIX + field.name, _written(getattr(changed, field.name))) for field in fields(changed)]
        parameters = [(name, value) for name, value in parameters if value and (name, value) != (PREFIX + "page", "1")]
        return "?" + urlencode([("tab", "completions"), *parameters])


def read(query: QueryDict, names: list[str]) -> CompletionFilter:
    """Parse the query. `names`: the run's reward components."""
    by, end, sort = (query.get(name, "") for name in ("by", "end", "sort"))
    every = query.get("every") == "1"
    return CompletionFilter(
        step=_whole(query.get("step")),
        every=every,
        q=query.get("q", "").replace("\0", "")[:MOST_TEXT],
        by=by if by in names else "",
        low=_float(query.get("low")),
        high=_float(query.get("high")),
        end=end if end in ENDS else "",
        sort=sort if sort in SORTS and not every else "",
        page=max(1, _whole(query.get("page")) or 1),
        before=query.get("before", "") if every else "",
    )


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else ""
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else None


def _float(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
