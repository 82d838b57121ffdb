"""The words of a replay."""

import pytest

from runs.insight.scoring.ordering import PairCounts
from runs.pages.playground.replay import GroupMember, GroupReplay, StoredGroup
from runs.pages.playground.replay_source import ReplayableGroups
from runs.pages.playground.replay_views import replayable_text


def a_member(before, now):
    return GroupMember(1, "text", 0.5, 0.5, before, now, 0.0, 0.0, [])


def a_group(*, flat_before=False, flat_now=False, **counts):
    pairs = PairCounts(**{name: counts.get(name, 0) for name in PairCounts.__dataclass_fields__})
    return GroupReplay(StoredGroup(1, 3, {"row": None}, "", []), [], pairs, flat_before, flat_now)


@pytest.mark.parametrize(
    ("before", "now", "tone", "text"),
    [(3, 1, "good", "↑2"), (1, 2, "bad", "↓1"), (1, 1, "muted", "="), (None, 2, "muted", "=")],
)
def test_a_completion_climbs_or_falls(before, now, tone, text):
    note = a_member(before, now).rank_change
    assert (note.tone, note.text) == (tone, text)


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (a_group(flat_now=True, turned=1), "loses its spread"),
        (a_group(flat_before=True, turned=1), "gains spread"),
        (a_group(turned=2, all=6), "2 of 6 pairs inverted"),
        (a_group(untied=1, made_equal=2), "1 tie broken, 2 created"),
        (a_group(), "same order"),
    ],
)
def test_a_group_names_its_most_important_change(group, text):
    assert group.note.text == text


def test_a_group_without_a_row_is_named_by_its_step():
    assert a_group().stored.label == "Step 3"


@pytest.mark.parametrize(
    ("groups", "live", "text"),
    [
        (ReplayableGroups(), True, "This run has no completions yet."),
        (ReplayableGroups(), False, "This run has no completions stored."),
        (ReplayableGroups(1, 1, 1), False, "1 group from step 1 with stored completions."),
        (
            ReplayableGroups(1, 5, 1200, 3),
            False,
            "1,200 groups from steps 1 to 5 with stored completions; for 3 more, only the scores are stored.",
        ),
    ],
)
def test_the_card_says_what_can_be_replayed(groups, live, text):
    assert replayable_text(groups, live=live) == text
