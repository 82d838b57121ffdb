"""Where the playground's completions come from: a dataset's row, a group that a run has stored, or a person's hand.

The page names a source by a few fields; each time it is read anew here, so what has gone in between is told and never
an error. Texts may be edited on the page: one that was stored counts with its turns and tokens while it is unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpRequest

from controlplane.datasets.models import DatasetVersion
from controlplane.datasets.queries import ready_versions
from runs.completions.groups import completions as completions_of
from runs.completions.reading import Steps, steps, valid
from runs.models import Run, SampleRow
from runs.playground import rows
from runs.queries import run_for, runs_for
from workers.rewards import Completion

SHOWN = 20_000
"""Characters of a completion that can be written here; a stored one that is longer is scored whole all the same."""
MOST = 64
RUNS = 20
GROUPS = 200
MOST_TESTS = 200
_BREAK = re.compile(r"\r\n?")


class SourceKind(StrEnum):
    DATASET = "dataset"
    RUN = "run"
    HAND = "hand"


@dataclass(frozen=True)
class Offered:
    """A completion to begin with."""

    text: str
    of: str = ""
    """Its number in the stored group; empty for one that is nobody's."""
    reward: float | None = None
    """What the run gave it."""
    advantage: float | None = None
    length: int = 0
    """Characters, where the page has only the first of them."""


@dataclass
class Source:
    """A row with completions of it, and what the page needs to choose others."""

    kind: SourceKind
    row: dict[str, Any]
    prompt: str
    offered: list[Offered]
    problem: str = ""
    version: DatasetVersion | None = None
    place: int = 0
    count: int = 1
    run: Run | None = None
    steps: Steps = field(default_factory=Steps)
    groups: list[SampleRow] = field(default_factory=list)
    group: SampleRow | None = None
    stored: dict[str, Completion] = field(default_factory=dict)
    """By its number in the group."""

    def say(self, words: str) -> None:
        """One more thing that is not as it was asked for."""
        self.problem = f"{self.problem} {words}".strip()

    @property
    def tests(self) -> str:
        return "\n".join(map(str, self.row.get("test_cases") or ()))

    @property
    def next_place(self) -> int:
        return (self.place + 1) % self.count


def read(request: HttpRequest, fields: Mapping[str, Any]) -> Source:
    """The source that a form or an address names: from=, and version= sample= | run= step= group= | prompt= answer=
    tests=. What it names and is not there falls back to what is."""
    kind = fields.get("from", "")
    if kind == SourceKind.RUN:
        return _of_run(request, fields)
    if kind == SourceKind.HAND:
        return _of_hand(fields)
    return _of_dataset(request, fields)


def written(source: Source, texts: Sequence[str], of: Sequence[str]) -> list[Completion]:
    """The page's completions as rewards get them: `of` beside `texts` says which of the stored ones each was. Blank
    ones of nobody's are passed over."""
    numbers = [*of, *[""] * len(texts)]
    made = []
    for text, number in zip(texts, numbers, strict=False):
        plain, stored = _BREAK.sub("\n", text), source.stored.get(number)
        if stored is not None and plain == _as_shown(stored.text):
            made.append(stored)
        elif plain.strip() or stored is not None:
            made.append(Completion(plain[:SHOWN]))
    return made[:MOST]


def runs_with_completions(request: HttpRequest, wanted: str, *, most: int = RUNS) -> QuerySet[Run]:
    """Newest first, those whose texts are kept; `wanted`: in the name, or the run's id."""
    found = runs_for(request).filter(samplestore__size__gt=0).order_by("-created_at")
    wanted = wanted.replace("\0", "").strip()[:120]
    if wanted:
        found = found.filter(name__icontains=wanted) | found.filter(pk=wanted)
    return found[:most]


def suggested(row: Mapping[str, Any]) -> list[str]:
    """Completions to start from: right, right but without the form, wrong in the right form, and neither."""
    answer = row.get("answer")
    right = "42" if answer is None else str(answer)
    thought = "I take what is given and work it out step by step."
    return [
        f"<think>\n{thought}\n</think>\n<answer>{right}</answer>",
        f"The answer is {right}",
        f"<think>\n{thought}\n</think>\n<answer>{_wrong(right)}</answer>",
        "I don't know.",
    ]


def completion(one: Any) -> Completion:
    """A stored completion (runs.completions.groups.Completion with its text) as rewards get it."""
    turns = tuple(turn for turn in one.turns or () if isinstance(turn, Mapping))
    return Completion(one.text or "", turns, one.tokens)


def stored_row(group: SampleRow) -> dict[str, Any]:
    """What the group itself tells of its row, where the dataset can't be read."""
    prompt, answer = group.data.get("prompt"), group.data.get("answer")
    return {
        "row": group.row,
        "prompt": group.data.get("turns") or (prompt if isinstance(prompt, str) else ""),
        "answer": None if answer is None else str(answer),
        "test_cases": [],
    }


def _of_dataset(request: HttpRequest, fields: Mapping[str, Any]) -> Source:
    versions = ready_versions(request)
    number = _number(fields.get("version"))
    found = versions.filter(pk=number).first() if number is not None else None
    version = found or versions.first()
    place = rows.at(version, _number(fields.get("sample")) or 0)
    offered = [Offered(text) for text in suggested(place.row)]
    return Source(
        SourceKind.DATASET,
        place.row,
        rows.shown_prompt(place.row),
        offered,
        place.problem,
        version=version,
        place=place.place,
        count=place.count,
    )


def _of_hand(fields: Mapping[str, Any]) -> Source:
    prompt = str(fields.get("prompt") or "")[:SHOWN]
    answer = str(fields.get("answer") or "")[:SHOWN]
    lines = _BREAK.sub("\n", str(fields.get("tests") or ""))[:SHOWN].split("\n")
    row = {
        "row": None,
        "prompt": prompt,
        "answer": answer or None,
        "test_cases": [line for line in lines if line.strip()][:MOST_TESTS],
    }
    return Source(SourceKind.HAND, row, prompt, [Offered(""), Offered("")])


def _of_run(request: HttpRequest, fields: Mapping[str, Any]) -> Source:
    source = Source(SourceKind.RUN, dict(rows.MADE_UP), "", [])
    wanted = str(fields.get("run") or "")
    if not wanted:
        return source
    try:
        run = run_for(request, wanted)
    except Http404:
        source.say("This run no longer exists. Choose another one.")
        return source
    source.run = run
    asked = _number(fields.get("group"))
    group = valid(run).filter(pk=asked).first() if asked is not None else None
    source.steps = steps(run, group.step if group else _number(fields.get("step")))
    if source.steps.step is None:
        source.say("This run has no completions yet.")
        return source
    # `data` is megabytes in all; only that of the group that is shown is read.
    source.groups = list(valid(run).filter(step=source.steps.step).order_by("pk").defer("data")[:GROUPS])
    if asked is not None and group is None:
        source.say("That group is gone: too old, or of a step discarded by a resume. Here is another one.")
    first = next((one for one in source.groups if one.size), None)
    _take(source, group or first)
    return source


def _take(source: Source, group: SampleRow | None) -> None:
    """Fill in what is stored of the group."""
    told = completions_of(group.data) if group else []
    if group is None or not any(one.text is not None for one in told):
        source.group = group
        source.say("The texts of this step are no longer stored, only their scores.")
        return
    source.group, run = group, source.run
    source.row = stored_row(group)
    if run is not None and group.row is not None:
        found = rows.by_number(run.dataset_version, [group.row])
        source.row = found.rows.get(group.row, source.row)
        if group.row not in found.rows:
            why = found.problem or f"{run.dataset_version} has no row {group.row}."
            source.say(f"{why} Only the prompt and the answer are known, as the run stored them.")
    source.prompt = rows.shown_prompt(source.row)
    if len(told) > MOST:
        source.say(f"The first {MOST} of its {len(told)} completions are here.")
    for one in told[:MOST]:
        source.stored[str(one.number)] = whole = completion(one)
        shown = _as_shown(whole.text)
        length = len(whole.text) if len(whole.text) > SHOWN else 0
        source.offered.append(Offered(shown, str(one.number), one.reward, one.advantage, length))


def _as_shown(text: str) -> str:
    """As the page has it, and sends it back."""
    return _BREAK.sub("\n", text)[:SHOWN].replace("\0", "\ufffd")


def _number(value: object) -> int | None:
    text = str(value or "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def _wrong(right: str) -> str:
    """An answer of the same kind that is not the right one."""
    try:
        return str(int(right.replace(",", "")) + 1)
    except ValueError:
        return f"not {right}"
