"""The words of a replay: its verdict, what was scored, and what each group and completion gained or lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from controlplane.platform.templatetags.figures import sig
from runs.engine.sentences import counted
from runs.pages.playground.replay import GroupMember, GroupReplay, RewardReplay
from runs.pages.playground.replay_source import KeptCompletions, Picked


@dataclass(frozen=True)
class ReplayNote:
    tone: str
    text: str
    title: str = ""


@dataclass(frozen=True)
class MemberWords:
    """A completion's row in a table."""

    member: GroupMember
    group: GroupReplay

    @property
    def rank_change(self) -> ReplayNote:
        came_from, climbed = f"From rank {self.member.rank_before}", self.member.climbed
        if climbed > 0:
            return ReplayNote("good", f"↑{climbed}", came_from)
        return ReplayNote("bad", f"↓{-climbed}", came_from) if climbed else ReplayNote("muted", "=", "As in the run")


@dataclass(frozen=True)
class GroupWords:
    group: GroupReplay

    @property
    def note(self) -> ReplayNote:
        """The most important change."""
        pairs = self.group.pairs
        if self.group.flat_now:
            return ReplayNote("chip warn", "loses its spread")
        if self.group.flat_before:
            return ReplayNote("chip good", "gains a spread")
        if pairs.turned:
            return ReplayNote("chip warn", f"{pairs.turned} of {pairs.all} pairs inverted")
        if self.group.reordered:
            return ReplayNote("muted small", f"{pairs.untied} ties broken, {pairs.made_equal} made equal")
        return ReplayNote("muted small", "same order")

    @property
    def members(self) -> list[MemberWords]:
        return [MemberWords(member, self.group) for member in self.group.shown]

    @property
    def left_out(self) -> str:
        shown, every = len(self.group.shown), len(self.group.members)
        return f"The {shown} of its {every} completions that change most." if shown < every else ""


@dataclass(frozen=True)
class ReplayWords:
    replay: RewardReplay
    picked: Picked
    live: bool

    @property
    def verdict(self) -> ReplayNote:
        if not self.replay.reordered:
            return ReplayNote("good", "No group's order changes.")
        groups = len(self.replay.groups)
        return ReplayNote("warn", f"The order changes in {sig(self.replay.reordered, 9)} of {_many(groups, 'group')}.")

    @property
    def scored(self) -> SafeString:
        """Extent of the replay: its groups, and those left out."""
        clauses = format_html_join("", "; {}", ((clause,) for clause in self._left_out()))
        first, last = self.replay.steps
        steps = f"step {last}" if first == last else f"steps {first} to {last}"
        return format_html("{} completions of {}{}.", sig(self.replay.completions, 9), steps, clauses)

    def _left_out(self) -> Iterator[str]:
        groups = len(self.replay.groups)
        if groups < self.replay.requested:
            words = f"scoring timed out after {groups} of {self.replay.requested} groups"
            yield format_html('<strong class="warn">{}</strong>', words)
        if self.picked.cut:
            yield "the rest of these steps is left out, as it is too much for one page"
        if self.picked.gone:
            yield f"{_many(self.picked.gone, 'group')} of these steps had no stored texts"
        if self.live:
            yield "the run continues"

    @property
    def scaling(self) -> str:
        """How advantages were scaled."""
        if self.replay.aggregation == "normalize_then_sum":
            return "Advantages of components normalized one by one, over the groups of a step that are here."
        if self.replay.scale == "batch":
            return "Advantages scaled by the spread of a step's groups that are here."
        if self.replay.scale in ("none", "False"):
            return "Advantages not scaled, as in the run."
        return "Advantages scaled by each group's spread."

    @property
    def groups_title(self) -> str:
        shown = len(self.replay.shown)
        few = shown < len(self.replay.groups)
        return f"The {shown} groups that change most" if few else "Groups, the most changed first"

    @property
    def groups(self) -> list[GroupWords]:
        return [GroupWords(group) for group in self.replay.shown]

    @property
    def movers(self) -> list[MemberWords]:
        return [MemberWords(member, group) for group, member in self.replay.movers]


def kept_words(kept: KeptCompletions, *, live: bool) -> str:
    """Describe the groups that can be replayed."""
    if not kept.groups and kept.gone:
        return (
            "The texts of this run's completions are no longer stored, only their scores: nothing can be scored again."
        )
    if not kept.groups:
        return f"This run has no completions {'yet' if live else 'stored'}."
    steps = f"step {kept.first}" if kept.first == kept.last else f"steps {kept.first} to {kept.last}"
    gone = f"; of {sig(kept.gone, 9)} more, only the scores are stored" if kept.gone else ""
    continues = " The run continues: new completions appear in the next replay." if live else ""
    return f"{_many(kept.groups, 'group')} of {steps} with their texts{gone}.{continues}"


def _many(number: int, noun: str) -> str:
    return counted(number, noun).replace(str(number), sig(number, 9), 1)
