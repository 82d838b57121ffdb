"""The opening of environments, which happens in children: servers, corpora and code are foreign."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from controlplane.catalogue.rewards.given import Given, given_for
from controlplane.platform.confined.limits import SlotsByKey, StoppedAtLimit, client_waits
from controlplane.platform.confined.pool import ChildPool
from controlplane.platform.confined.tasks import ConfinedTask
from workers.contract.run.episodes import EpisodeLimits, PartSpec
from workers.environments.entry import ToolDescription
from workers.environments.executor import MIN_OPENING_S, Executor, Unusable
from workers.environments.library import LIBRARY
from workers.rewards.tools import Tools

P = ParamSpec("P")
R = TypeVar("R")
GRACE_S = 5.0
"""Time after the executor's own limits in which a child can answer."""
EPISODES = ChildPool(4, memory_bytes=4 * 2**30)
"""Children for environments, which may wait for servers. The index of a corpus needs more memory than other tasks."""
_BY_ENVIRONMENT = SlotsByKey(2, waiting=6)
"""Half of the children: an environment that doesn't answer leaves the others to other environments."""


@dataclass(frozen=True)
class OpenedEnvironment:
    tools: list[ToolDescription]
    has_game: bool


def opened(parts: Sequence[PartSpec], limits: EpisodeLimits) -> OpenedEnvironment:
    """Open every part once, as a run does. Raises Unusable if the parts can't be opened in time or can't be combined,
    and Busy if no process becomes free."""
    try:
        with child_for(parts, _DESCRIBE, MIN_OPENING_S + GRACE_S) as describe_in_child:
            return describe_in_child(list(parts), limits, given_of(parts))
    except StoppedAtLimit as error:
        raise Unusable(str(error)) from None


@contextmanager
def child_for(parts: Sequence[PartSpec], task: ConfinedTask[P, R], seconds: float) -> Iterator[Callable[P, R]]:
    """Hold one of the environment's slots for the block, and provide the task with a time limit; it also ends when the
    request's client has gone. Raises Busy if none of the slots becomes free."""
    try:
        key = repr(list(parts))
    except RecursionError:  # parameters that no child is given either
        key = ""
    is_wanted = client_waits.get()
    with _BY_ENVIRONMENT.hold(key, task.what, seconds, is_wanted):
        yield task.within(seconds, is_wanted)


def given_of(parts: Sequence[PartSpec], *servers: str) -> Given:
    known_parts = [(LIBRARY[part.function], part.params) for part in parts if part.function in LIBRARY]
    return given_for(known_parts, *servers)


@contextmanager
def tools_of(given: Given, seconds: float) -> Iterator[Tools]:
    """Provide tools in a child for the block."""
    tools = given.turn(seconds).tools
    try:
        yield tools
    finally:
        tools.close()


def describe(parts: list[PartSpec], limits: EpisodeLimits, given: Given) -> OpenedEnvironment:
    with tools_of(given, MIN_OPENING_S) as tools:
        executor = Executor(parts, limits, tools)
        return OpenedEnvironment(executor.descriptions, executor.has_game)


_DESCRIBE = ConfinedTask(describe, "Opening this environment", (Unusable,), EPISODES)
