"""All entries, by key. Specs refer to these keys: never rename one or change its meaning."""

from __future__ import annotations

from workers.environments import calculator, sandboxed, search
from workers.environments.entry import Entry

_ENTRIES: tuple[Entry, ...] = (
    calculator.ENTRY,
    search.ENTRY,
    sandboxed.INTERPRETER,
    sandboxed.OWN_TOOL,
)
"""In the order of the pages."""

LIBRARY: dict[str, Entry] = {entry.key: entry for entry in _ENTRIES}
