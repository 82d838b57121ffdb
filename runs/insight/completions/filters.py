"""The completions tab's filter: parsed from a query string and written into the page's links."""

import math
from dataclasses import dataclass, fields, replace
from urllib.parse import urlencode

from django.http import QueryDict

from runs.insight.completions.episodes import ERRORS
from runs.insight.completions.groups import StoredCompletion
from workers.contract.run.episodes import EpisodeEnd

PREFIX = "s."
"""Prefix of the tab's parameters in the run page's URL."""
ENDS = {
    "eos": "ended normally",
    "length": "truncated at the length limit",
    "stop": "ended at a stop word",
    "tools": "out of tool calls",
    EpisodeEnd.DONE: "ended by the environment",
    EpisodeEnd.TURNS: "out of turns",
    EpisodeEnd.TIME: "out of time",
    EpisodeEnd.GONE: "its program disconnected",
    EpisodeEnd.FAILED: "the environment failed",
}
SHORT_ENDS = {"eos": "EOS", "length": "length", "stop": "stop word", "tools": "tool calls"} | {
    EpisodeEnd.DONE: "done",
    EpisodeEnd.TURNS: "turns",
    EpisodeEnd.TIME: "time",
    EpisodeEnd.GONE: "gone",
    EpisodeEnd.FAILED: "failed",
}
TRUNCATED_ENDS = frozenset({"length", EpisodeEnd.TURNS, EpisodeEnd.TIME})
BROKEN_ENDS = frozenset({EpisodeEnd.GONE, EpisodeEnd.FAILED})
ANY_ERROR = "any"
SORTS = {
    "": "Prompt",
    "-reward": "Reward, highest first",
    "reward": "Reward, lowest first",
    "-advantage": "Advantage, highest first",
    "advantage": "Advantage, lowest first",
    "-tokens": "Longest first",
    "tokens": "Shortest first",
}
EPISODE_SORTS = {
    "-turn_count": "Most turns first",
    "turn_count": "Fewest turns first",
}
MAX_TEXT = 200


@dataclass(frozen=True)
class CompletionFilter:
    """A filter of completions; invalid values of the query are ignored."""

    step: int | None = None
    every: bool = False
    """True to search all steps, newest first, instead of showing one."""
    q: str = ""
    by: str = ""
    """The reward component that `low` and `high` refer to, or "" for the total reward."""
    low: float | None = None
    high: float | None = None
    end: str = ""
    source: str = ""
    """Source or tag that the prompt must have."""
    tool: str = ""
    """Name of a tool that the episode must call."""
    error: str = ""
    """Error that a call must have: a ToolError, or ANY_ERROR."""
    turns_from: int | None = None
    turns_to: int | None = None
    sort: str = ""
    page: int = 1
    before: str = ""
    """The group (step.id) before which a search through all steps continues."""

    @property
    def ranged(self) -> bool:
        return self.low is not None or self.high is not None

    @property
    def filtered(self) -> bool:
        return bool(self.q or self.end or self.source) or self.ranged or self.of_episodes

    @property
    def of_episodes(self) -> bool:
        return bool(self.tool or self.error) or self.turns_from is not None or self.turns_to is not None

    def chooses(self, completion: StoredCompletion) -> bool:
        """Return whether a completion's end and episode match. The tools and errors of a deleted text are unknown."""
        if self.end and completion.end != self.end:
            return False
        if not self.of_episodes:
            return True
        facts = completion.facts
        tools, errors = (facts.tools, facts.errors) if facts else ((), ())
        if (self.tool and self.tool not in tools) or (self.error and not errors):
            return False
        if self.error not in ("", ANY_ERROR) and self.error not in errors:
            return False
        return _is_within(completion.turn_count, self.turns_from, self.turns_to)

    def within(self, value: float | None) -> bool:
        return _is_within(value, self.low, self.high)

    def cursor(self) -> tuple[int, int] | None:
        step, _, pk = self.before.partition(".")
        return (int(step), int(pk)) if step.isdecimal() and pk.isdecimal() else None

    def link(self, **changes: object) -> str:
        """Return the run page's query string with these changes, for the first page unless `page` is among them."""
        target = replace(self, **{"page": 1, "before": "", **changes})  # type: ignore[arg-type]
        parameters = [(PREFIX + field.name, _format(getattr(target, field.name))) for field in fields(target)]
        parameters = [(name, value) for name, value in parameters if value and (name, value) != (PREFIX + "page", "1")]
        return "?" + urlencode([("tab", "completions"), *parameters])


def read(query: QueryDict, names: list[str]) -> CompletionFilter:
    """Parse the query string. `names` are the run's reward components."""
    by, end, error, sort = (query.get(name, "") for name in ("by", "end", "error", "sort"))
    all_steps = query.get("every") == "1"
    return CompletionFilter(
        step=_whole_number(query.get("step")),
        every=all_steps,
        q=query.get("q", "").replace("\0", "")[:MAX_TEXT],
        by=by if by in names else "",
        low=_float(query.get("low")),
        high=_float(query.get("high")),
        end=end if end in ENDS else "",
        source=query.get("source", "").replace("\0", "")[:MAX_TEXT],
        tool=query.get("tool", "").replace("\0", "")[:MAX_TEXT],
        error=error if error == ANY_ERROR or error in ERRORS else "",
        turns_from=_whole_number(query.get("turns_from")),
        turns_to=_whole_number(query.get("turns_to")),
        sort=sort if (sort in SORTS or sort in EPISODE_SORTS) and not all_steps else "",
        page=max(1, _whole_number(query.get("page")) or 1),
        before=query.get("before", "") if all_steps else "",
    )


def _is_within(value: float | None, low: float | None, high: float | None) -> bool:
    if low is None and high is None:
        return True
    return value is not None and (low is None or value >= low) and (high is None or value <= high)


def _format(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else ""
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


def _whole_number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else None


def _float(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
