"""The servers on the Secrets page and the files of corpora that parameters name, looked up by the web process.

Child processes have no database, so a task gets them with its arguments.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from controlplane.catalogue.rewards import turns
from controlplane.catalogue.rewards.turns import TrialTurn
from controlplane.platform.confined import messages
from controlplane.platform.http.addresses import AddressRule
from workers.rewards.parameters import Described
from workers.rewards.tools import Endpoint, Unavailable

T = TypeVar("T")


@dataclass(frozen=True)
class GivenServer:
    """A server with its key, which the child needs in order to send requests."""

    address: str
    key: str = field(repr=False)
    rule: AddressRule | None


@dataclass(frozen=True)
class Given:
    servers: dict[str, GivenServer] = field(default_factory=dict)
    """Servers by their names."""
    corpora: dict[str, str] = field(default_factory=dict)
    """Files of corpora by the corpora's titles."""
    missing: dict[str, str] = field(default_factory=dict)
    """Reasons why servers and corpora can't be used, by name or title."""

    def turn(self, seconds: float) -> TrialTurn:
        """Begin a turn in a child, which ends early once the task is no longer wanted."""
        return TrialTurn(time.monotonic() + seconds, messages.is_wanted, self.endpoint, self.file_of)

    def endpoint(self, name: str) -> Endpoint:
        """Return the server with this name. Raises Unavailable if there is none."""
        server = self._found(self.servers, name)
        return Endpoint(server.address, server.key, server.rule)

    def file_of(self, title: str) -> Path:
        """Return the file of the corpus with this title. Raises Unavailable if there is none."""
        return Path(self._found(self.corpora, title))

    def _found(self, values: Mapping[str, T], name: str) -> T:
        if name not in values:
            raise Unavailable(self.missing.get(name, f"There is no {name} here." if name else "No server was chosen."))
        return values[name]


def given_for(parts: Iterable[tuple[Described, Mapping[str, Any]]], *servers: str) -> Given:
    """Look up the servers and corpora that entries' parameters name, and these `servers`."""
    given = Given()
    for name in servers:
        _add(given.servers, name, _server, given.missing)
    for entry, params in parts:
        for parameter in entry.schema():
            value = str(params.get(parameter["name"], parameter["default"]))
            if parameter["widget"] == "secret" and value:
                _add(given.servers, value, _server, given.missing)
            elif parameter["widget"] == "corpus":
                _add(given.corpora, value, lambda title: str(turns.file_of(title)), given.missing)
    return given


def _add(values: dict[str, T], name: str, look_up: Callable[[str], T], missing: dict[str, str]) -> None:
    try:
        values[name] = look_up(name)
    except Unavailable as error:
        missing[name] = str(error)


def _server(name: str) -> GivenServer:
    endpoint = turns.endpoint(name)
    rule = endpoint.refusal
    if not isinstance(rule, AddressRule | None):
        raise TypeError(f"{name} has a rule that can't be sent to a child")
    return GivenServer(endpoint.address, endpoint.key, rule)
