"""What the control plane asks of an engine that has machines: one of a shape, how it is, and to take it back.

A provider only provides machines. What it starts there is `python3 -m workers.host.join` with a join code, so a machine
of an engine is a host as any other: claims, stops and receipts are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Protocol

from workers.contract.wire.names import EndReason


class EngineError(Exception):
    """The engine refused, or can't be asked. The message says what it said, for people."""


@dataclass(frozen=True)
class MachineShape:
    """A machine to ask for."""

    gpus: int
    cpus: int
    """Cores."""
    minutes: int
    """How long the machine may live."""
    idle_minutes: int
    """The machine leaves after so long without a run."""
    memory_gib: int = 0
    """Of main memory; 0: as the engine gives it."""
    gpu_kind: str = ""
    """As the engine calls it (`h100`); "": any."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the kind of engine, such as a partition: checked by `Kind.problems`."""

    @property
    def cpu_slots(self) -> int:
        """What the machine offers as GRPO_CPU_SLOTS: by cores, as any host does."""
        return max(1, self.cpus // 2)

    @property
    def environment(self) -> dict[str, str]:
        """What the host's program on the machine is told by its environment, besides what the engine adds."""
        return {
            "GRPO_CPU_SLOTS": str(self.cpu_slots),
            "GRPO_LEAVE_AFTER_S": str(self.idle_minutes * 60),
            "GRPO_AT_STOP": "save",
            "GRPO_STOP_REASON": EndReason.HOST_PREEMPTED,
        }


class MachinePhase(StrEnum):
    QUEUED = "queued"
    """The engine has accepted it and has no machine yet."""
    STARTING = "starting"
    """There is a machine, or nearly; the host's program doesn't run yet."""
    RUNNING = "running"
    """The host's program runs, as far as the engine knows."""
    ENDED = "ended"
    """Nothing of it runs any more. This is taken as proof that its processes are gone."""
    LOST = "lost"
    """The engine knows nothing of it (any more)."""


@dataclass(frozen=True)
class MachineState:
    phase: MachinePhase
    sentence: str
    """For people: what the engine says, such as why it waits or how it ended."""
    taken_back: bool = False
    """It ended because the engine needs the machine, or its time is up; not because of what it did."""


class MachineProvider(Protocol):
    """One source of machines with its settings. Each call is bounded in time (30 s at most) and raises EngineError."""

    def request(self, shape: MachineShape, *, name: str, join: str) -> str:
        """Ask for a machine that joins as the host `name` with the one-time code `join`; return the engine's handle.

        Asking twice under one name gives one machine: the first answer may have been lost. The code is a secret: it
        belongs in a file or an environment, never in an argument list. It stays good while the machine is waited for.
        """
        ...

    def state(self, handle: str) -> MachineState: ...

    def release(self, handle: str) -> None:
        """End the machine, or take back the request. Releasing what has ended already is no error. The host's program
        gets SIGTERM and time to save (`workers.host.shutdown`), if the engine can give that."""
        ...


@dataclass(frozen=True)
class Option:
    """A setting of a kind of engine, a text."""

    name: str
    label: str
    help: str
    pattern: str = r"[^\x00-\x1f\x7f]*"
    """What its whole text matches."""
    words: str = "text in one line"
    """The pattern in words, for "Use …"."""
    required: bool = False
    initial: str = ""
    max_length: int = 200
    choices: Mapping[str, str] = field(default_factory=dict)
    """The only texts that there are, each with what the form calls it; empty: any that fits the pattern."""
    suggestions: Mapping[str, str] | Callable[[], Mapping[str, str]] = field(default_factory=dict)
    """Texts that the form offers, each with a description, or what finds them. Others may be entered too."""
    rare: bool = False
    """Few sources need it: the form has it folded."""


PRICE = Option(
    "gpu_hour_usd",
    "USD per GPU-hour",
    "What you pay for a GPU-hour: New run reckons a run’s cost by it, and each host starts with it.",
    pattern=r"(?=.*[1-9])[0-9]{1,4}(\.[0-9]{1,4})?",
    words="an amount, such as 2.50",
)


def price_of(options: Mapping[str, str]) -> Decimal | None:
    """What the source says; None: nothing."""
    text = options.get(PRICE.name, "")
    return Decimal(text) if re.fullmatch(PRICE.pattern, text) else None


@dataclass(frozen=True)
class EngineKind:
    """A kind of engine."""

    name: str
    label: str
    help: str
    """In one or two sentences: what must be there for it to work."""
    options: tuple[Option, ...]
    make: Callable[[str, Mapping[str, str]], MachineProvider]
    """From the control plane's address as machines reach it, and the source's options."""
    check: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _options: {}
    """What else is wrong with options that are well formed, by name."""
    settles: Callable[[Mapping[str, str]], Mapping[str, int | str]] = lambda _options: {}
    """What the source's options settle of its shape, by the name of the field."""
    names_gpus: bool = False
    """A machine with GPUs can't be asked for without their kind."""
    gpu_hour_usd: Callable[[Mapping[str, str]], Decimal | None] = price_of
    """The price of a GPU-hour of its machines, where it is known."""
    shares_runs: bool = False
    """The machines of one source keep their runs in one folder, and so resume each other's."""

    def problems(self, options: Mapping[str, str]) -> dict[str, str]:
        """What is wrong with a source's options, by name."""
        found = {
            name: f"{self.label} has no setting {name!r}." for name in options.keys() - {o.name for o in self.options}
        }
        for option in self.options:
            text = options.get(option.name, "")
            if not text:
                if option.required:
                    found[option.name] = f"{option.label} is needed."
            elif len(text) > option.max_length or not re.fullmatch(option.pattern, text):
                found[option.name] = f"Use {option.words}, up to {option.max_length} characters."
        return found or dict(self.check(options))
