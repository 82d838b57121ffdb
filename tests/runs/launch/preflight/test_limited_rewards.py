"""What preflight finds about components that apply only to some rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from runs.launch.preflight.draft import DataFacts
from runs.launch.preflight.finding import Grade
from tests.runs.launch.preflight.test_preflight import DATA, found
from workers.contract.run.mixing import SourceSettings
from workers.contract.run.spec import RewardSpec

TAGGED = ((frozenset({"hard", "algebra"}), 60), (frozenset({"easy"}), 40))
SUMS = replace(DATA, dataset="sums", name_sets=TAGGED)
CODE = DataFacts("code v1", dataset="code", rows=50, chat=True, has_answer=False, columns=("test_cases",), name_sets=())
OLD = replace(SUMS, name_sets=None)


def only(*names: str, **changes: Any) -> RewardSpec:
    return replace(RewardSpec("right", "numeric_match"), applies_to=names, **changes)


def mixed(*data: DataFacts) -> dict[str, Any]:
    return {"data": data[0], "mix": tuple((one, SourceSettings()) for one in data) if len(data) > 1 else ()}


def said(data: tuple[DataFacts, ...], *rewards: RewardSpec) -> list[tuple[Grade, str]]:
    marks = (" applies", " apply", "get no score", "reads the column")
    findings = [one for one in found(**mixed(*data), rewards=rewards) if any(mark in one.cause for mark in marks)]
    return [(one.grade, one.cause) for one in findings]


def test_it_says_which_names_no_row_has_and_which_rows_no_component_scores() -> None:
    named, tests = replace(only("sums"), name="s"), replace(only("code"), name="c", function="python_tests")
    recorded = replace(only("hard"), name="r", weight=0.0)
    for data, rewards, expected in (
        ((SUMS,), (only(),), []),
        ((SUMS,), (only("sums"),), []),
        ((SUMS,), (only("hard", "easy"),), []),
        ((SUMS, CODE), (only("sums"), tests), []),  # the answer that code lacks is needed by sums alone
        ((SUMS,), (only("hard"),), [(Grade.WARN, "40 training rows of sums v1 (with easy) get no score")]),
        ((SUMS,), (only("easy"), recorded), [(Grade.WARN, "60 training rows of sums v1 (with algebra, hard)")]),
        ((SUMS,), (only("easy", "hard", "hrad"),), [(Grade.WARN, "right also applies to rows of hrad, but the run")]),
        (
            (SUMS,),
            (only("geometry"), named),
            [(Grade.WARN, "right applies only to rows of geometry, but the run has no such rows")],
        ),
        (
            (SUMS,),
            (only("geometry"),),
            [(Grade.STOP, "No component with a weight applies to any row"), (Grade.WARN, "right applies only to rows")],
        ),
        ((OLD,), (only("sums"),), []),
        ((OLD,), (only("hard"),), [(Grade.NOTE, "Which rows of sums v1 the limited components apply to is not known")]),
    ):
        findings = said(data, *rewards)
        assert [grade for grade, _ in findings] == [grade for grade, _ in expected], (rewards, findings)
        assert all(text in cause for (_, cause), (_, text) in zip(findings, expected, strict=True)), findings
