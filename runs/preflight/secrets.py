"""Secrets that rewards name: there, and openable."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, stop


def check(draft: Draft) -> Iterator[Finding]:
    for why in draft.secrets.values():
        yield stop("reward_version", why, "The run would be refused at its start.")
