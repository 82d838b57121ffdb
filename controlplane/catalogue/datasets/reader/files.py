"""File names in a version's folder. Files are written under temporary names first, so existing ones are complete."""

from __future__ import annotations

SOURCE = "source"
"""The uploaded or fetched file, unmodified, in any format."""
REPORT = "report.json"
"""The results of `check` (problems.Report)."""
PROBLEMS = "problems.jsonl"
"""All problems of the check, one problems.Problem per line."""
MAPPED = "mapped.json"
"""The results of `import`."""
MAPPED_PROBLEMS = "mapped_problems.jsonl"
PROGRESS = "progress.json"
"""{"stage": str, "bytes": int, "of": int, "rows": int, "of_rows": int, "mb_per_s": float}:
replaced at most twice a second."""
ROWS = "rows.parquet"
"""The canonical rows (canonical.SCHEMA) for the trainer, identified by their sha256."""
DOCUMENTS = "documents.parquet"
"""The documents of a corpus, see workers.contract.run.corpora."""
SHOWN = "shown.jsonl"
"""One row of ROWS per line, shortened for pages; with SHOWN_INDEX any page is read without Parquet."""
SHOWN_INDEX = "shown.idx"
"""The offset of each line of SHOWN: unsigned 64-bit numbers, little-endian."""
