"""The interface to engines that provide machines: requesting a machine, reading its state and releasing it. An engine
starts `python3 -m workers.host.join` with a join code on the machine, which makes it a host like any other with the
same claims, stops and receipts."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Protocol

from workers.contract.wire.names import EndReason


class EngineError(Exception):
    """The engine refused a request or is unreachable. The message is for users and includes the engine's response."""


@dataclass(frozen=True)
class MachineShape:
    """The size and the limits of a machine to request."""

    gpus: int
    cpus: int
    minutes: int
    idle_minutes: int
    """Minutes without a run after which the machine leaves."""
    memory_gib: int = 0
    """Main memory; 0 for the engine's default."""
    gpu_kind: str = ""
    """The engine's name for the GPU model, such as `h100`; "" for any."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the kind of engine, such as a partition, checked by `EngineKind.problems`."""

    @property
    def cpu_slots(self) -> int:
        """The machine's GRPO_CPU_SLOTS: half the number of its cores, as on any host."""
        return max(1, self.cpus // 2)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the host's program on the machine, in addition to the engine's own."""
        return {
            "GRPO_CPU_SLOTS": str(self.cpu_slots),
            "GRPO_LEAVE_AFTER_S": str(self.idle_minutes * 60),
            "GRPO_AT_STOP": "save",
            "GRPO_STOP_REASON": EndReason.HOST_PREEMPTED,
        }


class MachinePhase(StrEnum):
    QUEUED = "queued"
    """The engine has accepted the request but has no machine yet."""
    STARTING = "starting"
    """The machine is being set up; the host's program isn't running yet."""
    RUNNING = "running"
    """The host's program is running, as far as the engine knows."""
    ENDED = "ended"
    """The machine is gone, which proves that its processes are gone, too."""
    LOST = "lost"
    """The engine doesn't know the machine."""


@dataclass(frozen=True)
class MachineState:
    phase: MachinePhase
    sentence: str
    """The engine's report, as users see it, such as why the machine is waiting or how it ended."""
    taken_back: bool = False
    """True if the machine ended because the engine took it back or its time was up, not because of its program."""


class MachineProvider(Protocol):
    """A client of one source of machines. Each call takes 30 s at most and may raise EngineError."""

    def request(self, shape: MachineShape, *, name: str, join: str) -> str:
        """Request a machine that joins as the host `name` with the one-time code `join`. Return the engine's handle.
        Two requests with the same name get the same machine, since the first response may have been lost. The code is a
        secret: it belongs in a file or an environment variable, never in an argument list. It stays valid while the
        machine is pending."""
        ...

    def state(self, handle: str) -> MachineState: ...

    def release(self, handle: str) -> None:
        """End the machine, or withdraw its request; do nothing if it has already ended. The host's program gets SIGTERM
        and time to save (`workers.host.shutdown`), if the engine supports that."""
        ...


@dataclass(frozen=True)
class Option:
    """A string setting of a kind of engine."""

    name: str
    label: str
    help: str
    pattern: str = r"[^\x00-\x1f\x7f]*"
    """A regular expression that the whole value must match."""
    hint: str = "text in one line"
    """Description of the pattern, to follow "Enter …"."""
    required: bool = False
    initial: str = ""
    max_length: int = 200
    choices: Mapping[str, str] = field(default_factory=dict)
    """Allowed values with their labels; if empty, any value that matches the pattern is allowed."""
    suggestions: Mapping[str, str] | Callable[[], Mapping[str, str]] = field(default_factory=dict)
    """Suggested values with descriptions, or a function that returns them. Other values are allowed, too."""
    rare: bool = False
    """True if few sources need the option, so that the form collapses it."""


PRICE = Option(
    "gpu_hour_usd",
    "USD per GPU-hour",
    "What a GPU-hour costs you. New run uses it to estimate costs, and it is the initial price of each host.",
    pattern=r"(?=.*[1-9])[0-9]{1,4}(\.[0-9]{1,4})?",
    hint="an amount, such as 2.50",
)


def price_of(options: Mapping[str, str]) -> Decimal | None:
    """Read the price of a GPU-hour from the source's options; return None if they contain none."""
    text = options.get(PRICE.name, "")
    return Decimal(text) if re.fullmatch(PRICE.pattern, text) else None


@dataclass(frozen=True)
class EngineKind:
    """A kind of engine, such as Slurm, with its options and its functions."""

    name: str
    label: str
    help: str
    """One or two sentences on what engines of this kind provide and require."""
    options: tuple[Option, ...]
    make: Callable[[str, Mapping[str, str]], MachineProvider]
    """Function from the control plane's address, as machines reach it, and the options to the provider."""
    check: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _options: {}
    """Function that returns problems of well-formed options, by name."""
    settles: Callable[[Mapping[str, str]], Mapping[str, int | str]] = lambda _options: {}
    """Function that returns the fields of the machine's shape that the options determine, by name."""
    requires_gpu_kind: bool = False
    """True if a request for GPUs must name their type."""
    gpu_hour_usd: Callable[[Mapping[str, str]], Decimal | None] = price_of
    """Function that returns the price of a GPU-hour on its machines; None if unknown."""
    shares_runs: bool = False
    """True if the machines of one source share a folder of runs, so that each can resume the others' runs."""

    def problems(self, options: Mapping[str, str]) -> dict[str, str]:
        problems = {
            name: f"{self.label} has no setting {name!r}." for name in options.keys() - {o.name for o in self.options}
        }
        for option in self.options:
            text = options.get(option.name, "")
            if not text:
                if option.required:
                    problems[option.name] = f"{option.label} is required."
            elif len(text) > option.max_length or not re.fullmatch(option.pattern, text):
                problems[option.name] = f"Enter {option.hint}, with at most {option.max_length} characters."
        return problems or dict(self.check(options))
