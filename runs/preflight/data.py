"""The dataset version: chosen, checked, with rows."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, stop


def check(draft: Draft) -> Iterator[Finding]:
    data = draft.data
    if data is None:
        yield stop("dataset_version", "No dataset is chosen.", "Choose one, or upload one under Datasets.")
    elif not data.ready:
        yield stop("dataset_version", f"{data.name} isn't ready.", "Finish its column mapping, or choose another.")
    elif data.rows == 0:
        yield stop("dataset_version", f"{data.name} has no rows.", "Choose another dataset.")
