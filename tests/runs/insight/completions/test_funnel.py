"""The funnel of a run's samples: on the page, by API, and what it says of counts that nothing recorded."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.catalogue.datasets.models import DatasetVersion
from runs.engine.models import Run
from runs.engine.records import SampleRow, SampleStore
from runs.insight.completions import funnel
from runs.intake.host_api import uploads
from tests.controlplane.people import viewer
from tests.runs.api.clients import Program
from tests.runs.builders import an_attempt

pytestmark = pytest.mark.django_db


def group(row: int, *scores: float | None, ends: str = "", **more: Any) -> dict[str, Any]:
    """`ends`: "c" for a completion that the length limit cut."""
    told = [
        {"text": "a", "end": "length" if end == "c" else "eos", "rewards": {}, "reward": score}
        for score, end in zip(scores, ends.ljust(len(scores)), strict=True)
    ]
    return {"step": 1, "row": row, "completions": told, **more}


GROUPS = [
    group(0, 1.0, 0.0, ends="c"),
    group(1, 1.0, None, 0.5, ends=" cc"),
    group(2, 1.0, 1.0),
    group(3, None, None),
    group(4, 0.0, 0.0, mode="replaced"),
    group(5, 0.0, 1.0, mode="replaced"),
    group(6, 0.0, 1.0, mode="eval"),
]


def short(stages: list[funnel.SampleStage]) -> list[tuple[int | None, int | None, list[int | None]]]:
    return [(stage.count, stage.groups, [loss.count for loss in stage.losses]) for stage in stages]


def test_it_counts_what_each_stage_loses_on_the_page_and_by_api() -> None:
    attempt = an_attempt()
    run = Run.objects.get(pk=attempt.run_id)
    assert funnel.of(run).completions == []
    assert "No completions yet" in viewer().get(f"/runs/{run.pk}/funnel/").content.decode()
    uploads.samples(attempt, 1, GROUPS)
    scored = [(13, 6, []), (10, 5, [3]), (6, 3, [2, 2])]
    for grpo, trained in (({}, (4, 2, [2])), ({"mask_truncated_completions": True}, (2, 2, [2, 2]))):
        run.spec = {**run.spec, "grpo": grpo}
        found = funnel.of(run)
        assert short(found.completions) == [*scored, trained]
        assert found.notes == []
    page = viewer().get(f"/runs/{run.pk}/funnel/").content.decode()
    assert "dynamic sampling replaced it" in page
    told = Program().get(f"runs/{run.pk}/funnel").json()
    assert [stage["count"] for stage in told["completions"]] == [13, 10, 6, 4]
    assert told["completions"][1]["losses"] == [{"reason": funnel.UNSCORED, "count": 3, "groups": None}]


def test_prompts_are_followed_from_the_file_and_what_is_not_known_is_said() -> None:
    attempt = an_attempt()
    uploads.samples(attempt, 1, GROUPS)
    run = Run.objects.get(pk=attempt.run_id)
    versions = DatasetVersion.objects.filter(pk=run.dataset_version_id)
    told = {"rows": 30, "mapped": {"dropped_duplicates": 4}}
    parent = DatasetVersion.objects.create(
        dataset=run.dataset_version.dataset, number=99, status="ready", rows=27, report={**told, "rows": 33}
    )
    for columns, max_rows, expected in (
        ({"report": told}, 0, [(30, []), (20, [6, 4]), (15, [5]), (6, [9])]),
        ({"report": told}, 8, [(30, []), (20, [6, 4]), (8, [5, 7]), (6, [2])]),
        ({"report": {}}, 0, [(None, []), (20, [None, None]), (15, [5]), (6, [9])]),
        ({"source_kind": "derived"}, 0, [(None, []), (20, [None, None, None]), (15, [5]), (6, [9])]),
        ({"parent": parent, "source_kind": "derived"}, 0, [(33, []), (20, [2, 4, 7]), (15, [5]), (6, [9])]),
    ):
        versions.update(**{"rows": 20, "validation_rows": 5, **columns})
        run = Run.objects.get(pk=run.pk)
        run.spec = {**run.spec, "data": {**run.spec["data"], "max_rows": max_rows}}
        stages = funnel.of(run).prompts
        assert [(stage.count, [loss.count for loss in stage.losses]) for stage in stages] == expected
    SampleRow.objects.filter(row=2).update(scored=None)
    SampleStore.objects.filter(pk=run.pk).update(groups_from=12)
    found = funnel.of(run)
    assert short(found.completions)[1:3] == [(None, 5, [None]), (None, 3, [None, None])]
    assert found.since_step == 12
    assert ["12" in note or "earlier version" in note for note in found.notes] == [True, True]
    assert "not known" in viewer().get(f"/runs/{run.pk}/funnel/").content.decode()
    episodes = {"grpo": {"mask_truncated_completions": True}, "episodes": {"gateway": {}}, "ahead": True}
    run.spec = {**run.spec, **episodes}
    assert funnel.of(run).completions[-1].count is None
