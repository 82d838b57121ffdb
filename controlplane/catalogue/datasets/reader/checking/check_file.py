"""The verb `check`, which detects the format, runs both passes over the file, and reports the results."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from controlplane.catalogue.datasets.reader import excerpts, files
from controlplane.catalogue.datasets.reader.checking import first_pass, second_pass
from controlplane.catalogue.datasets.reader.checking.report import Collector
from controlplane.catalogue.datasets.reader.columns import row_function
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, checked_part
from controlplane.catalogue.datasets.reader.parsing import formats, schema
from controlplane.catalogue.datasets.reader.parsing.records import RowSource
from controlplane.catalogue.datasets.reader.problems import DataProblem, FileProblem
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile

FIRST_PASS, SECOND_PASS = "first pass", "second pass"
PREVIEW_ROWS = 8


def run(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Check the folder's SOURCE with {"mapping": {...} or None}, write PROBLEMS and REPORT, and return the report.

    Without a mapping, the recognised one is used. A mapping with a function also needs {"backend": of the sandbox}.
    """
    source = folder / files.SOURCE
    mapping = ColumnMapping.from_dict(arguments["mapping"]) if arguments.get("mapping") else None
    result, near_count = first_pass.FirstPassResult(), 0
    report: dict[str, Any] = {"format": None, "file_error": None, "bytes": source.stat().st_size, "passes": []}
    with (
        Collector(folder / files.PROBLEMS) as collector,
        row_function.open_function(mapping, arguments.get("backend")) as rewrite,
    ):
        try:
            file_format = formats.detect(source)
            report["format"] = {"kind": file_format.kind, "gzip": file_format.gzip, "note": file_format.note}
            if file_format.bom:
                collector.add(DataProblem(1, "byte_order_mark", file_format.note, byte=0))
            near_count = _run_passes(RowSource(source, file_format, rewrite), mapping, collector, result, report)
        except FileProblem as problem:
            report["file_error"] = problem.as_dict()
        except MemoryError:
            memory_problem = FileProblem("limits", "Checking this file takes more memory than is allowed.")
            report["file_error"] = memory_problem.as_dict()
    return files.write_result(folder, files.REPORT, report | _results(mapping, collector, result, near_count))


def _run_passes(
    rows: RowSource,
    mapping: ColumnMapping | None,
    collector: Collector,
    result: first_pass.FirstPassResult,
    report: dict[str, Any],
) -> int:
    folder, size, near_count = rows.path.parent, report["bytes"], 0
    started_at = time.monotonic()
    first_pass.run(rows, mapping, collector, ProgressFile(folder, FIRST_PASS, size), result)
    report["passes"].append(_pass_timing(FIRST_PASS, started_at, size, result.rows))
    if result.mapping.has_prompt and not collector.gave_up:
        started_at = time.monotonic()
        near_count = second_pass.run(rows, result.mapping, collector, ProgressFile(folder, SECOND_PASS, size))
        report["passes"].append(_pass_timing(SECOND_PASS, started_at, size, result.rows))
    return near_count


def _results(
    mapping: ColumnMapping | None, collector: Collector, result: first_pass.FirstPassResult, near_count: int
) -> dict[str, Any]:
    used_mapping = mapping or (result.recognised.mapping if result.recognised else None)
    return {
        "checked": checked_part(used_mapping).as_dict() if used_mapping else None,
        "lines": result.lines,
        "rows": result.rows,
        "records": result.records,
        "blank": result.blank,
        **collector.as_dict(),
        "columns": schema.as_columns(result.columns),
        "paths": result.paths,
        "preview": [excerpts.short(row) for row in result.sample[:PREVIEW_ROWS]],
        "recognised": result.recognised.as_dict() if result.recognised else None,
        "duplicates": {"exact": result.duplicates, "near": near_count},
    }


def _pass_timing(name: str, started_at: float, size: int, rows: int) -> dict[str, Any]:
    seconds = max(time.monotonic() - started_at, 1e-6)
    return {
        "name": name,
        "seconds": round(seconds, 3),
        "mb_per_s": round(size / 1e6 / seconds, 1),
        "rows_per_s": round(rows / seconds),
    }
