"""The hardware profile: chosen, and consistent in itself."""

from __future__ import annotations

from collections.abc import Iterator

from controlplane.hardware.profiles import problems
from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, stop


def check(draft: Draft) -> Iterator[Finding]:
    if draft.hardware is None:
        yield stop("profile", "No hardware profile is chosen.", "Choose one; CPU works everywhere.")
        return
    for _, cause in problems(draft.hardware):
        yield stop("profile", f"{draft.hardware.profile}: {cause}", "Correct the profile under Hardware.")
