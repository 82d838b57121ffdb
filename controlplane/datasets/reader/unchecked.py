"""What the check has not looked at, since it guessed other columns than the mapping takes: code, prompts that repeat.

An import looks at it row by row, and tells of it in the check's own words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from controlplane.datasets.reader import files, row_code
from controlplane.datasets.reader.duplicates import Duplicates
from controlplane.datasets.reader.mapping import ColumnMapping, canonical, prompt_text, resolved
from controlplane.datasets.reader.near import NearDuplicates
from controlplane.datasets.reader.problems import Problem
from controlplane.datasets.reader.report import Collector
from controlplane.datasets.reader.second_pass import near_problem

_PROMPT = ("prompt", "messages", "input", "follow_up")
_CODE = ("prompt", "messages", "answer", "answer_after", "transform", "test_cases", "follow_up", "follow_up_response")


class Unchecked:
    """`folder`: of the version, with the check's report. `mapping`: a resolved one."""

    def __init__(self, folder: Path, mapping: ColumnMapping) -> None:
        checked = _of_the_check(folder)
        self.has_code = _differ(checked, mapping, _CODE)
        """Whether code is looked at in here; otherwise the check's report tells of it."""
        self._mapping = mapping
        # What is written around each prompt would make all of them alike.
        self._bare = replace(mapping, template="", system_prompt="")
        self._files = ExitStack()
        self._near: NearDuplicates | None = None
        if _differ(checked, mapping, _PROMPT):
            self._near = self._files.enter_context(NearDuplicates(folder))
            self._same = self._files.enter_context(Duplicates(folder))

    def problems(self, row: Mapping[str, Any], made: Mapping[str, Any], line: int) -> Iterable[Problem]:
        """Of the row's code."""
        return row_code.problems(row, made, self._mapping, line) if self.has_code else ()

    def add(self, row: Mapping[str, Any], made: Mapping[str, Any], line: int) -> None:
        """A row that is taken. Lines ascend."""
        if self._near is None:
            return
        if self._bare != self._mapping:
            made = canonical(row, self._bare, made["row_id"])
        text = prompt_text(made["prompt"])
        self._near.add(text, line)
        self._same.add(text, line)

    def tell(self, collector: Collector) -> None:
        """Of the prompts that came again; once, after all rows."""
        if self._near is None:
            return
        for line, first in self._same.found():
            message = f"The prompt is the same as in line {first:,}."
            collector.add(Problem(line, "exact_duplicate", message, field=self._mapping.prompt))
        for found in self._near.found():
            collector.add(near_problem(found))

    def close(self) -> None:
        self._files.close()


def _of_the_check(folder: Path) -> ColumnMapping:
    """What its second pass took for the prompt and the rest; nothing without a report."""
    try:
        recognised = msgspec.json.decode((folder / files.REPORT).read_bytes())["recognised"]
    except FileNotFoundError:
        recognised = None
    return resolved(ColumnMapping.from_dict((recognised or {}).get("mapping") or {}))


def _differ(one: ColumnMapping, other: ColumnMapping, names: Iterable[str]) -> bool:
    return any(getattr(one, name) != getattr(other, name) for name in names)
