"""The interface to engines that provide machines: request one of a shape, read its state, release it.

An engine starts `python3 -m workers.host.join` with a join code on the machine, which makes it a host like any other:
claims, stops and receipts are the same.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Protocol

from workers.contract.wire.names import EndReason


class EngineError(Exception):
    """The engine refused or can't be reached. The message, for people, includes its answer."""


@dataclass(frozen=True)
class MachineShape:
    """The size and the limits of a machine to request."""

    gpus: int
    cpus: int
    minutes: int
    """Longest lifetime of the machine, in minutes."""
    idle_minutes: int
    """Minutes without a run after which the machine leaves."""
    memory_gib: int = 0
    """Main memory; 0: the engine's default."""
    gpu_kind: str = ""
    """The engine's name for the GPU model, such as `h100`; empty: any."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the kind of engine, such as a partition, checked by `EngineKind.problems`."""

    @property
    def cpu_slots(self) -> int:
        """GRPO_CPU_SLOTS of the machine: half of its cores, like any host."""
        return max(1, self.cpus // 2)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the host's program on the machine, besides the engine's own."""
        return {
            "GRPO_CPU_SLOTS": str(self.cpu_slots),
            "GRPO_LEAVE_AFTER_S": str(self.idle_minutes * 60),
            "GRPO_AT_STOP": "save",
            "GRPO_STOP_REASON": EndReason.HOST_PREEMPTED,
        }


class MachinePhase(StrEnum):
    QUEUED = "queued"
    """The engine has accepted the request and has no machine yet."""
    STARTING = "starting"
    """The machine is being set up; the host's program doesn't run yet."""
    RUNNING = "running"
    """The host's program runs, as far as the engine knows."""
    ENDED = "ended"
    """The machine is gone, which proves that its processes are."""
    LOST = "lost"
    """The engine doesn't know the machine."""


@dataclass(frozen=True)
class MachineState:
    phase: MachinePhase
    sentence: str
    """The engine's report for people, such as why the machine waits or how it ended."""
    taken_back: bool = False
    """It ended because the engine took the machine back or its time was up, not because of its program."""


class MachineProvider(Protocol):
    """One source of machines with its settings. Each call is bounded in time (30 s at most) and raises EngineError."""

    def request(self, shape: MachineShape, *, name: str, join: str) -> str:
        """Request a machine that joins as the host `name` with the one-time code `join`. Return the engine's handle.

        Two requests under one name give one machine, since the first answer may have been lost. The code is a secret:
        it belongs in a file or an environment, never in an argument list. It stays valid while the machine is pending.
        """
        ...

    def state(self, handle: str) -> MachineState: ...

    def release(self, handle: str) -> None:
        """End the machine, or withdraw the request; no error if it has already ended. The host's program gets SIGTERM
        and time to save (`workers.host.shutdown`), if the engine supports that."""
        ...


@dataclass(frozen=True)
class Option:
    """A setting of a kind of engine, a text."""

    name: str
    label: str
    help: str
    pattern: str = r"[^\x00-\x1f\x7f]*"
    """A regular expression for the whole text."""
    hint: str = "text in one line"
    """The description of the pattern, after "Use …"."""
    required: bool = False
    initial: str = ""
    max_length: int = 200
    choices: Mapping[str, str] = field(default_factory=dict)
    """The allowed texts with their labels; empty: any text that fits the pattern."""
    suggestions: Mapping[str, str] | Callable[[], Mapping[str, str]] = field(default_factory=dict)
    """Suggested texts with descriptions, or a function that returns them. Other texts are allowed, too."""
    rare: bool = False
    """Few sources need it, so the form folds it."""


PRICE = Option(
    "gpu_hour_usd",
    "USD per GPU-hour",
    "Your price of a GPU-hour. New run estimates costs with it, and each host starts with it.",
    pattern=r"(?=.*[1-9])[0-9]{1,4}(\.[0-9]{1,4})?",
    hint="an amount, such as 2.50",
)


def price_of(options: Mapping[str, str]) -> Decimal | None:
    """Read the price of a GPU-hour from the source's options; None if not given."""
    text = options.get(PRICE.name, "")
    return Decimal(text) if re.fullmatch(PRICE.pattern, text) else None


@dataclass(frozen=True)
class EngineKind:
    """A kind of engine."""

    name: str
    label: str
    help: str
    """Its requirements, in one or two sentences."""
    options: tuple[Option, ...]
    make: Callable[[str, Mapping[str, str]], MachineProvider]
    """(the control plane's address as machines reach it, the source's options) -> the provider"""
    check: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _options: {}
    """Further problems of well-formed options, by name."""
    settles: Callable[[Mapping[str, str]], Mapping[str, int | str]] = lambda _options: {}
    """Fields of the machine's shape that follow from the options, by name."""
    names_gpus: bool = False
    """A machine with GPUs needs the kind of GPU."""
    gpu_hour_usd: Callable[[Mapping[str, str]], Decimal | None] = price_of
    """The price of a GPU-hour of its machines; None if unknown."""
    shares_runs: bool = False
    """The machines of one source share a folder of runs, and so can resume each other's."""

    def problems(self, options: Mapping[str, str]) -> dict[str, str]:
        """Find the problems of a source's options, by name."""
        problems = {
            name: f"{self.label} has no setting {name!r}." for name in options.keys() - {o.name for o in self.options}
        }
        for option in self.options:
            text = options.get(option.name, "")
            if not text:
                if option.required:
                    problems[option.name] = f"{option.label} is needed."
            elif len(text) > option.max_length or not re.fullmatch(option.pattern, text):
                problems[option.name] = f"Use {option.hint}, up to {option.max_length} characters."
        return problems or dict(self.check(options))
