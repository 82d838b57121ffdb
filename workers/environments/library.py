"""All entries of the library, by key. Specs refer to these keys, so never rename one or change its meaning."""

from workers.environments import calculator, openenv, sandboxed, search, textarena
from workers.environments.entry import Entry

_ENTRIES: tuple[Entry, ...] = (
    calculator.ENTRY,
    search.ENTRY,
    sandboxed.INTERPRETER,
    sandboxed.OWN_TOOL,
    textarena.ENTRY,
    *openenv.ENTRIES,
)

LIBRARY: dict[str, Entry] = {entry.key: entry for entry in _ENTRIES}
