"""Jobs: runs that train nothing and do something with a run's model. Standard library only.

A job's spec is that of the run, with the job's kind and hardware. spec.start_from is the checkpoint that it is about:
the adapter of spec.model, or all weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MERGE = "merge"
SERVE = "serve"

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class JobKind:
    label: str
    """On pages, as the title of one job."""
    many: str
    reads_rows: bool = False
    """Whether the job needs the dataset's rows on its host."""
    working: str = "At work."
    """On pages, while it runs."""


KINDS: dict[str, JobKind] = {
    MERGE: JobKind("Merge", "Merges", reads_rows=True),
    SERVE: JobKind("Served model", "Served models", working="It answers."),
}
"""RunSpec.kind -> the job."""


def needs_rows(kind: str) -> bool:
    """Whether a run of this kind needs its dataset's rows on the host."""
    return kind not in KINDS or KINDS[kind].reads_rows


@dataclass(frozen=True)
class ServeJob:
    """Settings of SERVE."""

    idle_minutes: float = 15.0
    """It ends by itself after so long without a turn of the chat or a request."""
    gives_way_s: float = 20.0
    """The same while another run waits for what it holds, unless it listens."""
    address: str = ""
    """Where it listens for HTTP requests, on the last port of its placement; "": it only answers the chat."""


def ports_of(kind: str, job: dict[str, Any]) -> int:
    """How many ports a job listens on itself."""
    return int(kind == SERVE and bool(job.get("address")))
