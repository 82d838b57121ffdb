"""Held-out rows: enough left to train on, and an interval that comes round."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, Fix, stop, warn


def check(draft: Draft) -> Iterator[Finding]:
    rows = draft.data.rows if draft.data and draft.data.ready else None
    if rows is not None and draft.eval_rows and draft.eval_rows >= rows:
        some = max(rows // 10, 1)
        yield stop(
            "eval_rows",
            f"{draft.eval_rows:,} rows for evaluation leave nothing of {rows:,} to train on.",
            "Hold fewer rows out.",
            *([Fix(f"Hold out {some}", {"eval_rows": str(some)})] if rows > 1 else []),
            Fix("Don't evaluate", {"eval_rows": "0"}),
        )
    every, last = draft.value("eval_steps"), draft.value("max_steps")
    if draft.eval_rows and every and last and 0 < last < every:
        yield warn(
            "eval_steps",
            f"The run ends at step {last}, before its first evaluation at step {int(every)}.",
            "Evaluate more often.",
            Fix(f"Evaluate every {max(last // 4, 1)} steps", {"eval_steps": str(max(last // 4, 1))}),
        )
