"""Links to runs."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from runs.engine.models import Run
from runs.engine.sharing import links
from runs.engine.sharing.models import SharedLink


def a_link(run: Run, *, days: int = 7, with_completions: bool = False) -> tuple[SharedLink, str]:
    """The link and its token."""
    until = timezone.now() + timedelta(days=days)
    return links.create(run, run.owner, until=until, with_completions=with_completions)
