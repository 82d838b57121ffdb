"""What rewards that are more than a function on text get to work with; opened when first asked for."""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workers.packages.interpreter import PackageMissing, open_sandbox, remote_command
from workers.packages.process import PackageProcess

if TYPE_CHECKING:
    from workers.sandbox.pool import Sandbox

MOST_KEPT = 256
"""Results kept for later batches; the least recently used goes first."""
SECRET_PREFIX = "GRPO_SECRET_"  # noqa: S105  the name of the variables, no secret


@dataclass(frozen=True)
class Endpoint:
    """A server that a judge may ask, with its key: made by an admin on the secrets page under a name."""

    address: str
    """https://host/v1: what requests begin with."""
    key: str = field(default="", repr=False)
    refusal: Callable[[str], str | None] | None = field(default=None, repr=False, compare=False)
    """Why nothing is sent to an IP address; None where it may be. Without it every address may be."""


class Unavailable(Exception):
    """Something a reward needs is not here. The text says what, for people."""


def endpoint_from_environment(name: str) -> Endpoint:
    """The endpoint that the supervisor fetched at its claim. Raises Unavailable."""
    text = os.environ.get(SECRET_PREFIX + name)
    if text is None:
        raise Unavailable(f"There is no endpoint named {name} in this run: {SECRET_PREFIX}{name} is not set.")
    try:
        held = json.loads(text)
        return Endpoint(address=str(held["address"]), key=str(held.get("key", "")))
    except (ValueError, LookupError, TypeError, AttributeError):
        pass  # whose words and context may hold the key
    raise Unavailable(f"The endpoint named {name} can't be read.")


def no_corpora(title: str) -> Path:
    raise Unavailable(f"There is no corpus named {title} here." if title else "No corpus is chosen.")


class Tools:
    """One for each process that scores. Close it at the end: it may own processes."""

    def __init__(
        self,
        *,
        open_sandbox: Callable[[tuple[str, ...]], Sandbox],
        open_package: Callable[[str], Sandbox] | None = None,
        endpoint: Callable[[str], Endpoint] = endpoint_from_environment,
        trainer: Mapping[str, Callable[..., object]] | None = None,
        corpus: Callable[[str], Path] = no_corpora,
    ) -> None:
        self._open = open_sandbox
        self._open_package = open_package or _open_package
        self.endpoint = endpoint
        self.corpus = corpus
        """The file of a corpus by its title (workers.contract.run.corpora). Raises Unavailable."""
        self.trainer = dict(trainer or {})
        """What only the trainer's process has, by name; empty elsewhere."""
        self._sandboxes: dict[tuple[str, ...], Sandbox] = {}
        self._packages: dict[str, Sandbox] = {}
        self._program: PackageProcess | None = None
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def kept(self, key: Hashable) -> Any:
        """What `keep` was given for this key; None if it was nothing, or long ago."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def keep(self, key: Hashable, value: Any) -> None:
        """Keep what several completions or batches need. The key names the reward and all that the value depends on."""
        with self._lock:
            self._put(key, value)

    def _put(self, key: Hashable, value: Any) -> None:
        self._kept[key] = value
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    def slots(self, key: Hashable, count: int) -> threading.Semaphore:
        """Bounds what goes on at once under this key, whoever asks for it."""
        with self._lock:
            found: threading.Semaphore = self._kept.get((key, count)) or threading.Semaphore(count)
            self._put((key, count), found)
            return found

    def sandbox(self, *preload: str) -> Sandbox:
        """A sandbox whose zygote has these modules imported. Raises workers.sandbox.SandboxUnavailable."""
        with self._lock:
            if preload not in self._sandboxes:
                self._sandboxes[preload] = self._open(preload)
            return self._sandboxes[preload]

    def package(self, name: str) -> Sandbox:
        """A sandbox of the interpreter that has the packages of others, with workers.packages.inside.`name` imported.
        Raises Unavailable and workers.sandbox.SandboxUnavailable."""
        with self._lock:
            if name not in self._packages:
                try:
                    self._packages[name] = self._open_package(name)
                except PackageMissing as error:
                    raise Unavailable(str(error)) from None
            return self._packages[name]

    def program(self) -> PackageProcess:
        """OpenEnv's client in that interpreter; started by its first request."""
        with self._lock:
            if self._program is None:
                self._program = PackageProcess(remote_command)
            return self._program

    def close(self) -> None:
        opened: list[Sandbox | PackageProcess]
        with self._lock:
            opened = [*self._sandboxes.values(), *self._packages.values()]
            opened += [self._program] if self._program else []
            self._sandboxes, self._packages, self._program = {}, {}, None
        for one in opened:
            one.close()


def _open_package(name: str) -> Sandbox:
    from workers.sandbox.selftest import best as best_backend

    return open_sandbox(name, best_backend())
