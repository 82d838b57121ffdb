"""Checks an uploaded file and writes its canonical rows, in a process of its own with hard limits.

    python -m controlplane.datasets.validation FOLDER check
    python -m controlplane.datasets.validation FOLDER map < mapping.json

FOLDER holds source.jsonl. `check` reads every line as JSON; `map` reads it again with a column mapping and writes
rows.jsonl. Either writes report.json last, under another name first: a report that is there is whole.
An upload is hostile until proved otherwise, so this process has no database, no secrets and little memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from controlplane.datasets.lines import BOM, FileProblem, Problem, refuse_other_formats, rows, visible
from controlplane.datasets.mapping import ColumnMapping, RowProblem, canonical, guess, prompt_text

MEMORY_BYTES = 1536 * 2**20
CPU_SECONDS = 900
MOST_ROWS = 3_000_000
MOST_COLUMNS = 200
GIVE_UP_AFTER = 10_000
"""Bad lines; a file with more is of another kind, and the first ones say which."""
SHOWN_PER_KIND = 20
PREVIEW_ROWS = 8
PREVIEW_BYTES = 64 * 2**10
PREVIEW_TEXTS = (20_000, 2_000, 200, 20)
"""Characters of a text; the first length with which the row is small enough."""
HISTOGRAM_BINS = 24

TOO_MUCH = 3
"""Exit code: the limits were reached."""


class Report:
    """What is found, bounded however bad the file is."""

    def __init__(self) -> None:
        self.problems: list[dict[str, Any]] = []
        self.kinds: Counter[str] = Counter()
        self.notes: list[str] = []
        self.lines = self.rows = self.blank = 0
        self.gave_up = False
        self.file_error = ""

    def add(self, problem: Problem) -> None:
        self.kinds[problem.kind] += 1
        if self.kinds[problem.kind] <= SHOWN_PER_KIND:
            self.problems.append(problem.as_dict())

    @property
    def error_count(self) -> int:
        return self.kinds.total()

    def as_dict(self) -> dict[str, Any]:
        return {
            "errors": self.problems,
            "error_count": self.error_count,
            "kinds": dict(self.kinds.most_common()),
            "notes": self.notes,
            "lines": self.lines,
            "rows": self.rows,
            "blank": self.blank,
            "gave_up": self.gave_up,
            "file_error": self.file_error,
        }


def check(folder: Path) -> dict[str, Any]:
    """Every line as JSON, and which columns there are."""
    report, columns = Report(), Counter[str]()
    preview: list[dict[str, Any]] = []
    try:
        with (folder / "source.jsonl").open("rb") as file:
            _refuse_what_is_no_text(file.read(4096), report)
            file.seek(0)
            for number, row in rows(file):
                report.lines = number
                if row is None:
                    report.blank += 1
                elif isinstance(row, Problem):
                    report.add(row)
                    if report.error_count >= GIVE_UP_AFTER:
                        report.gave_up = True
                        break
                else:
                    report.rows += 1
                    columns.update(row.keys())
                    _limits(report, columns)
                    if len(preview) < PREVIEW_ROWS:
                        preview.append(row)
        if report.lines == report.blank:
            raise FileProblem("The file is empty." if not report.lines else "The file has only blank lines.")
    except FileProblem as problem:
        report.file_error = str(problem)
    return report.as_dict() | {
        "columns": [{"name": name, "filled": filled} for name, filled in columns.items()],
        "preview": [shortened(row) for row in preview],
        "guess": guess(preview).as_dict(),
    }


def _refuse_what_is_no_text(head: bytes, report: Report) -> None:
    refuse_other_formats(head)
    if head.startswith(BOM):
        report.notes.append("The file starts with a byte order mark, which was passed over.")


def _limits(report: Report, columns: Counter[str]) -> None:
    if report.rows > MOST_ROWS:
        raise FileProblem(f"The file has more than {MOST_ROWS:,} rows. Split it, or train on a part of it.")
    if len(columns) > MOST_COLUMNS:
        raise FileProblem(
            f"The rows have more than {MOST_COLUMNS} different fields; each row should have the same ones."
        )


def shortened(row: dict[str, Any]) -> dict[str, Any]:
    """The row as a page shows it: bounded, and free of what a database or a page could stumble over."""
    for longest in PREVIEW_TEXTS:
        short: dict[str, Any] = _cut(row, longest)
        if len(json.dumps(short)) <= PREVIEW_BYTES:
            return short
    return {"…": "This row is too large to show."}


def _cut(value: Any, longest: int) -> Any:
    if isinstance(value, str):
        text = "\n".join(map(visible, value[:longest].replace("\r\n", "\n").split("\n")))
        return text + ("…" if len(value) > longest else "")
    if isinstance(value, dict):
        return {visible(name): _cut(inner, longest) for name, inner in value.items()}
    if isinstance(value, list):
        return [_cut(inner, longest) for inner in value[:longest]]
    return value


def map_rows(folder: Path, mapping: ColumnMapping) -> dict[str, Any]:
    """Canonical rows into rows.jsonl; the file is put in place only when it may be used."""
    report, written = Report(), Written()
    draft = folder / "rows.jsonl.part"
    with (folder / "source.jsonl").open("rb") as file, draft.open("wb") as out:
        for number, row in rows(file):
            report.lines = number
            if row is None:
                continue
            problem = row if isinstance(row, Problem) else written.add(out, number, row, mapping)
            if isinstance(problem, Problem):
                report.add(problem)
                if report.error_count >= GIVE_UP_AFTER:
                    report.gave_up = True
                    break
        out.flush()
        os.fsync(out.fileno())
    report.rows = written.rows
    if not written.rows:
        report.file_error = "No row fits this mapping."
    usable = written.rows > 0 and not report.gave_up and (mapping.leave_out or not report.error_count)
    if usable:
        draft.rename(folder / "rows.jsonl")
    else:
        draft.unlink()
    return report.as_dict() | written.facts() | {"usable": usable}


class Written:
    """The canonical rows so far: how many, their hash, and what is worth knowing about them."""

    def __init__(self) -> None:
        self.rows = 0
        self.hash = hashlib.sha256()
        self.encode = msgspec.json.Encoder().encode
        self.columns: Counter[str] = Counter()
        self.prompts: set[int] = set()
        self.first: list[dict[str, Any]] = []
        self.lengths: dict[str, list[int]] = {"prompt": [], "answer": []}

    def add(self, out: Any, number: int, row: dict[str, Any], mapping: ColumnMapping) -> Problem | None:
        try:
            made = canonical(row, mapping)
        except RowProblem as problem:
            return Problem(
                number, problem.kind, visible(str(problem)), visible(json.dumps(row, ensure_ascii=False)[:160])
            )
        line = self.encode({"row": self.rows, **made}) + b"\n"
        out.write(line)
        self.hash.update(line)
        self.rows += 1
        self._note(made)
        return None

    def _note(self, made: dict[str, Any]) -> None:
        text = prompt_text(made["prompt"])
        self.prompts.add(hash(text))
        self.columns.update(made.keys())
        self.lengths["prompt"].append(len(text))
        if made["answer"] is not None:
            self.lengths["answer"].append(len(made["answer"]))
        if len(self.first) < PREVIEW_ROWS:
            self.first.append({"row": self.rows - 1, **made})

    def facts(self) -> dict[str, Any]:
        return {
            "sha256": self.hash.hexdigest(),
            "names": list(self.columns),
            "distinct": len(self.prompts),
            "preview": [shortened(row) for row in self.first],
            "lengths": {name: histogram(values) for name, values in self.lengths.items() if values},
            "warnings": self._warnings(),
        }

    def _warnings(self) -> list[str]:
        if self.rows > 1 and len(self.prompts) == 1:
            return [f"All {self.rows:,} rows have the same prompt: is the mapping right?"]
        repeated = self.rows - len(self.prompts)
        if repeated > self.rows / 2:
            return [f"{repeated:,} of {self.rows:,} rows repeat the prompt of an earlier row."]
        return []


def histogram(values: list[int]) -> dict[str, Any]:
    """Counts in equal bins up to the 99th percentile; what is longer counts into the last."""
    ordered = sorted(values)
    top = max(1, ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))])
    bins = [0] * HISTOGRAM_BINS
    for value in ordered:
        bins[min(HISTOGRAM_BINS - 1, value * HISTOGRAM_BINS // (top + 1))] += 1
    return {"bins": bins, "top": top, "median": ordered[len(ordered) // 2], "longest": ordered[-1]}


def limit_this_process() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(arguments: list[str]) -> int:
    folder, what = Path(arguments[0]), arguments[1]
    limit_this_process()
    try:
        if what == "map":
            found = map_rows(folder, ColumnMapping.from_dict(json.load(sys.stdin)))
        else:
            found = check(folder)
        text = json.dumps(found, ensure_ascii=False, allow_nan=False)
    except MemoryError:
        return TOO_MUCH
    draft = folder / "report.json.part"
    draft.write_text(text, encoding="utf-8", errors="replace")
    draft.rename(folder / "report.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
