"""python3 -m workers.diagnosis FOLDER_OR_LOG [--json]: explains why a run failed, and what to do."""

import argparse
import json
import sys
from pathlib import Path

from workers.diagnosis.folder import NothingToRead, diagnose
from workers.diagnosis.judging import Diagnosis, Report
from workers.diagnosis.matching import UNEXPLAINED_ID


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m workers.diagnosis", description=__doc__)
    parser.add_argument("path", type=Path, help="a run's folder, an attempt's folder, or a log")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args(argv)
    try:
        report = diagnose(options.path)
    except OSError as error:
        print(
            f"{error.filename}: {error.strerror}. Expected the folder of a run or an attempt, or a log.",
            file=sys.stderr,
        )
        return 2
    except NothingToRead as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(report.as_dict(), ensure_ascii=False, indent=1) if options.json else in_words(report))
    return 0 if any(diagnosis.id != UNEXPLAINED_ID for diagnosis in report.diagnoses) else 1


def in_words(report: Report) -> str:
    """Format a report as plain text for a terminal."""
    parts = [_paragraph(diagnosis) for diagnosis in report.diagnoses]
    if not parts:
        parts = ["The cause of this failure is unknown."]
    if report.first_errors:
        errors = "\n".join(f"  {line.file}:{line.number}: {line.text}" for line in report.first_errors)
        parts.append(f"The first error of each process:\n{errors}")
    return "\n\n".join(parts)


def _paragraph(diagnosis: Diagnosis) -> str:
    lines = [f"{diagnosis.title} ({diagnosis.confidence})", f"  {diagnosis.cause}", f"  What to do: {diagnosis.fix}"]
    lines += [f"  {line.file}:{line.number}: {line.text}" for line in diagnosis.lines]
    return "\n".join(lines + [f"  {fact}" for fact in diagnosis.facts])


if __name__ == "__main__":
    sys.exit(main())
