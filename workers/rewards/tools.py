"""Tools of rewards and environments beyond plain functions: sandboxes, servers and caches, opened on first use."""

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

CACHE_SIZE = 256
"""Maximum number of results cached for later batches; the least recently used is dropped first."""
SECRET_PREFIX = "GRPO_SECRET_"  # noqa: S105  the prefix of variable names, not a secret


@dataclass(frozen=True)
class Endpoint:
    """A server for judges and environments, with its key, as an admin named it on the Secrets page."""

    address: str
    key: str = field(default="", repr=False)
    refusal: Callable[[str], str | None] | None = field(default=None, repr=False, compare=False)
    """Function that returns why an IP address is refused, or None if it isn't. Without a function, all are allowed."""


class Unavailable(Exception):
    """Raised when something that a reward needs is missing. The message tells people what it is."""


def endpoint_from_environment(name: str) -> Endpoint:
    """Read an endpoint from the environment variable that the supervisor set, and return it. Raises Unavailable if it
    isn't set or can't be read."""
    value = os.environ.get(SECRET_PREFIX + name)
    if value is None:
        raise Unavailable(f"There is no endpoint named {name} in this run: {SECRET_PREFIX}{name} is not set.")
    try:
        secret = json.loads(value)
        return Endpoint(address=str(secret["address"]), key=str(secret.get("key", "")))
    except (ValueError, LookupError, TypeError, AttributeError):
        pass  # the exception's message may hold the key
    raise Unavailable(f"The endpoint named {name} can't be read.")


def no_corpora(title: str) -> Path:
    raise Unavailable(f"There is no corpus named {title} here." if title else "No corpus has been chosen.")


class Tools:
    """Tools of one scoring process. Close them at the end, since they may own processes."""

    def __init__(
        self,
        *,
        open_sandbox: "Callable[[tuple[str, ...]], Sandbox]",
        open_package: "Callable[[str], Sandbox] | None" = None,
        endpoint: Callable[[str], Endpoint] = endpoint_from_environment,
        trainer: Mapping[str, Callable[..., object]] | None = None,
        corpus: Callable[[str], Path] = no_corpora,
    ) -> None:
        self._open = open_sandbox
        self._open_package = open_package or _open_package
        self.endpoint = endpoint
        self.corpus = corpus
        """Function that returns the file of a corpus by its title (workers.contract.run.corpora), or raises Unavailable
        if there is none."""
        self.trainer = dict(trainer or {})
        self._sandboxes: dict[str | tuple[str, ...], Sandbox] = {}
        """Open sandboxes by their preloaded modules, or by the name of a package's module."""
        self._program: PackageProcess | None = None
        self._cached: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def cached(self, key: Hashable) -> Any:
        """Return the cached value, or None if it is absent or has been dropped."""
        with self._lock:
            if key in self._cached:
                self._cached.move_to_end(key)
            return self._cached.get(key)

    def cache(self, key: Hashable, value: Any) -> None:
        """Cache a value for later batches. The key names the reward and everything that the value depends on."""
        with self._lock:
            self._put(key, value)

    def _put(self, key: Hashable, value: Any) -> None:
        self._cached[key] = value
        self._cached.move_to_end(key)
        while len(self._cached) > CACHE_SIZE:
            self._cached.popitem(last=False)

    def slots(self, key: Hashable, count: int) -> threading.Semaphore:
        """Return a semaphore with `count` slots, shared by all users of this key."""
        with self._lock:
            slots: threading.Semaphore = self._cached.get((key, count)) or threading.Semaphore(count)
            self._put((key, count), slots)
            return slots

    def sandbox(self, *preload: str) -> "Sandbox":
        """Return a sandbox whose zygote has these modules imported, starting it if necessary. Raises SandboxUnavailable
        if it can't be started."""
        with self._lock:
            if preload not in self._sandboxes:
                self._sandboxes[preload] = self._open(preload)
            return self._sandboxes[preload]

    def package(self, name: str) -> "Sandbox":
        """Return a sandbox that uses the interpreter with third-party packages and has workers.packages.inside.`name`
        imported. Raises Unavailable if the interpreter or a package is missing, and SandboxUnavailable if the sandbox
        can't be started."""
        with self._lock:
            if name not in self._sandboxes:
                try:
                    self._sandboxes[name] = self._open_package(name)
                except PackageMissing as error:
                    raise Unavailable(str(error)) from None
            return self._sandboxes[name]

    def program(self) -> PackageProcess:
        """Return OpenEnv's client in the interpreter with third-party packages. The first request starts it."""
        with self._lock:
            if self._program is None:
                self._program = PackageProcess(remote_command)
            return self._program

    def close(self) -> None:
        with self._lock:
            sandboxes, self._sandboxes = self._sandboxes, {}
            program, self._program = self._program, None
        for sandbox in sandboxes.values():
            sandbox.close()
        if program is not None:
            program.close()


def _open_package(name: str) -> "Sandbox":
    from workers.sandbox.selftest import best as best_backend

    return open_sandbox(name, best_backend())
