"""Sources of the playground's completions: a dataset row, a stored group of a run, or manual entry.

The page identifies a source by a few fields, and the source is read again on each request. Anything that has been
deleted in between is reported and is not an error. Completions can be edited; a stored one keeps its turns and tokens
as long as it is unchanged.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpRequest

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.queries import ready_versions
from controlplane.platform.templatetags.figures import change, sig
from runs.engine.models import Run
from runs.engine.queries import run_for, runs_for
from runs.engine.records import SampleRow
from runs.insight.completions import episodes
from runs.insight.completions.episodes import StoredEpisode
from runs.insight.completions.groups import completions as completions_of
from runs.insight.completions.reading import Steps, steps, valid_groups
from runs.insight.scoring import rows
from workers.rewards.reward import Completion

EDITABLE_CHARS = 20_000
"""Maximum number of characters of an editable completion; a longer stored one is still scored in full."""
MAX_COMPLETIONS = 64
RUNS = 20
GROUPS = 200
MAX_TESTS = 200
_BREAK = re.compile(r"\r\n?")


class SourceKind(StrEnum):
    DATASET = "dataset"
    RUN = "run"
    HAND = "hand"


@dataclass(frozen=True)
class OfferedCompletion:
    """A completion that the page offers for editing."""

    text: str
    of: str = ""
    """Number in the stored group; empty if the completion isn't stored."""
    reward: float | None = None
    advantage: float | None = None
    length: int = 0
    """The full length in characters if the page shows only the beginning, otherwise 0."""
    episode: StoredEpisode | None = None

    @property
    def in_the_run(self) -> str:
        if self.reward is None:
            return ""
        advantage = change(self.advantage)
        return f"{sig(self.reward)} ({advantage})" if advantage else sig(self.reward)


@dataclass
class CompletionSource:
    """A row with its completions, and what the page needs for choosing others."""

    kind: SourceKind
    row: dict[str, Any]
    prompt: str
    offered: list[OfferedCompletion]
    problem: str = ""
    version: DatasetVersion | None = None
    index: int = 0
    count: int = 1
    run: Run | None = None
    steps: Steps = field(default_factory=Steps)
    groups: list[SampleRow] = field(default_factory=list)
    group: SampleRow | None = None
    stored: dict[str, Completion] = field(default_factory=dict)

    def add_problem(self, sentence: str) -> None:
        self.problem = f"{self.problem} {sentence}".strip()

    @property
    def template(self) -> str:
        return f"pages/playground/_source_{self.kind}.html"

    @property
    def group_choices(self) -> list[tuple[SampleRow, str]]:
        return [(group, _group_label(group)) for group in self.groups]

    @property
    def tests(self) -> str:
        return "\n".join(map(str, self.row.get("test_cases") or ()))

    @property
    def next_index(self) -> int:
        return (self.index + 1) % self.count


def read(request: HttpRequest, fields: Mapping[str, Any]) -> CompletionSource:
    """Read the source that the fields of a form or an address identify: `from`, and `version` and `sample`, or `run`,
    `step` and `group`, or `prompt`, `answer` and `tests`. Missing fields fall back to what exists."""
    kind = fields.get("from", "")
    if kind == SourceKind.RUN:
        return _from_run(request, fields)
    if kind == SourceKind.HAND:
        return _from_entry(fields)
    return _from_dataset(request, fields)


def to_score(source: CompletionSource, texts: Sequence[str], stored_numbers: Sequence[str]) -> dict[int, Completion]:
    """Return the completions to score by their index on the page, counted from 0. `stored_numbers` holds the numbers of
    the stored ones, "" for new ones. Empty new completions are skipped."""
    numbers = [*stored_numbers, *[""] * len(texts)]
    completions = {}
    for index, (text, number) in enumerate(zip(texts[:MAX_COMPLETIONS], numbers, strict=False)):
        plain_text, stored_completion = _BREAK.sub("\n", text), source.stored.get(number)
        if stored_completion is not None and plain_text == _as_shown(stored_completion.text):
            completions[index] = stored_completion
        elif plain_text.strip() or stored_completion is not None:
            completions[index] = Completion(plain_text[:EDITABLE_CHARS])
    return completions


def runs_with_completions(request: HttpRequest, phrase: str) -> QuerySet[Run]:
    """Find runs with stored completions, newest first. `phrase` is a part of the name, or the run's id."""
    matches = runs_for(request).filter(samplestore__size__gt=0).order_by("-created_at")
    phrase = phrase.replace("\0", "").strip()[:120]
    if phrase:
        matches = matches.filter(name__icontains=phrase) | matches.filter(pk=phrase)
    return matches[:RUNS]


def suggest_completions(row: Mapping[str, Any]) -> list[str]:
    """Suggest four completions: a right one, one with the wrong format, one with a wrong answer, and one with neither
    right."""
    answer = row.get("answer")
    right_answer = "42" if answer is None else str(answer)
    thought = "I take what is given and work it out step by step."
    return [
        f"<think>\n{thought}\n</think>\n<answer>{right_answer}</answer>",
        f"The answer is {right_answer}",
        f"<think>\n{thought}\n</think>\n<answer>{_wrong_answer(right_answer)}</answer>",
        "I don't know.",
    ]


def completion(stored_completion: Any) -> Completion:
    """Convert a stored completion (runs.insight.completions.groups) into one that rewards can score."""
    turns = tuple(turn for turn in stored_completion.turns or () if isinstance(turn, Mapping))
    return Completion(stored_completion.text or "", turns, stored_completion.tokens)


def stored_row(group: SampleRow) -> dict[str, Any]:
    """Build the row from the group alone, for use when the dataset can't be read."""
    prompt, answer = group.data.get("prompt"), group.data.get("answer")
    return {
        "row": group.row,
        "prompt": group.data.get("turns") or (prompt if isinstance(prompt, str) else ""),
        "answer": None if answer is None else str(answer),
        "test_cases": [],
    }


def _from_dataset(request: HttpRequest, fields: Mapping[str, Any]) -> CompletionSource:
    versions = ready_versions(request)
    version = versions.filter(pk=number(fields.get("version")) or 0).first() or versions.first()
    place = rows.row_at(version, number(fields.get("sample")) or 0)
    return CompletionSource(
        SourceKind.DATASET,
        place.row,
        rows.shown_prompt(place.row),
        offered=[OfferedCompletion(text) for text in suggest_completions(place.row)],
        problem=place.problem,
        version=version,
        index=place.index,
        count=place.count,
    )


def _from_entry(fields: Mapping[str, Any]) -> CompletionSource:
    prompt, answer = (str(fields.get(name) or "")[:EDITABLE_CHARS] for name in ("prompt", "answer"))
    lines = _BREAK.sub("\n", str(fields.get("tests") or ""))[:EDITABLE_CHARS].split("\n")
    row = {
        "row": None,
        "prompt": prompt,
        "answer": answer or None,
        "test_cases": [line for line in lines if line.strip()][:MAX_TESTS],
    }
    return CompletionSource(SourceKind.HAND, row, prompt, [OfferedCompletion(""), OfferedCompletion("")])


def _from_run(request: HttpRequest, fields: Mapping[str, Any]) -> CompletionSource:
    source = CompletionSource(SourceKind.RUN, dict(rows.EXAMPLE_ROW), "", [])
    run_id = str(fields.get("run") or "")
    if not run_id:
        return source
    try:
        run = run_for(request, run_id)
    except Http404:
        source.add_problem("This run no longer exists. Choose another run.")
        return source
    source.run = run
    group_id = number(fields.get("group"))
    group = valid_groups(run).filter(pk=group_id).first() if group_id is not None else None
    source.steps = steps(run, group.step if group else number(fields.get("step")))
    if source.steps.step is None:
        source.add_problem("This run has no completions yet.")
        return source
    # The `data` of all groups is megabytes, so read only that of the displayed group.
    source.groups = list(valid_groups(run).filter(step=source.steps.step).order_by("pk").defer("data")[:GROUPS])
    if group_id is not None and group is None:
        source.add_problem(
            "That group no longer exists: it was too old, or a resume discarded its step. Another one is shown."
        )
    first_stored = next((stored_group for stored_group in source.groups if stored_group.size), None)
    _load_group(source, group or first_stored)
    return source


def _load_group(source: CompletionSource, group: SampleRow | None) -> None:
    stored_completions = completions_of(group.data) if group else []
    if group is None or not any(item.text is not None for item in stored_completions):
        source.group = group
        source.add_problem("The completions of this step are no longer stored, only their scores.")
        return
    source.group, run = group, source.run
    source.row = stored_row(group)
    if run is not None and group.row is not None:
        search = rows.of_run(run, [group.row])
        source.row = search.rows.get(group.row, source.row)
        if group.row not in search.rows:
            reason = search.problem or f"{run.dataset_version} has no row {group.row}."
            source.add_problem(f"{reason} Only the prompt and the answer that the run stored are known.")
    source.prompt = rows.shown_prompt(source.row)
    if len(stored_completions) > MAX_COMPLETIONS:
        source.add_problem(f"Only the first {MAX_COMPLETIONS} of its {len(stored_completions)} completions are shown.")
    for item in stored_completions[:MAX_COMPLETIONS]:
        source.stored[str(item.number)] = full_completion = completion(item)
        text = _as_shown(full_completion.text)
        length = len(full_completion.text) if len(full_completion.text) > EDITABLE_CHARS else 0
        source.offered.append(
            OfferedCompletion(text, str(item.number), item.reward, item.advantage, length, episodes.read(item.turns))
        )


def _group_label(group: SampleRow) -> str:
    row = "Prompt without a row" if group.row is None else f"Row {group.row}"
    reward = f"reward {sig(group.reward_low)} to {sig(group.reward_high)}"
    evaluation = ", evaluation" if group.mode == "eval" else ""
    return f"{row}: {group.completions} completions, {reward}{evaluation}{'' if group.size else ', texts not stored'}"


def _as_shown(text: str) -> str:
    """Convert a completion's text to the form that the page shows and sends back."""
    return _BREAK.sub("\n", text)[:EDITABLE_CHARS].replace("\0", "\ufffd")


def number(value: object, digits: int = 18) -> int | None:
    text = str(value or "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits else None


def _wrong_answer(right_answer: str) -> str:
    try:
        return str(int(right_answer.replace(",", "")) + 1)
    except ValueError:
        return f"not {right_answer}"
