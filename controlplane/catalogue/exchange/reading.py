"""Results of reading a config: the values for a run and its hardware, and notes on everything else.

A value's path is its place in the run's spec: `grpo.learning_rate`, `hardware.server.gpus`, `lora.r`, `model.path`.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

MAX_NOTES = 500


class DocumentKind(StrEnum):
    """Kind of document, named as on the pages."""

    AXOLOTL = "Axolotl YAML"
    TRL = "TRL config"
    COMMAND = "command line"
    PYTHON = "Python script"
    DEEPSPEED = "DeepSpeed JSON"
    ACCELERATE = "accelerate YAML"
    SPEC = "run spec"
    PROFILE = "hardware profile"
    VERL = "verl config"
    SWIFT = "ms-swift command"
    OPENRLHF = "OpenRLHF command"
    NEMO = "NeMo RL config"
    LLAMAFACTORY = "LLaMA-Factory YAML"
    PRIME = "prime-rl TOML"
    ATROPOS = "Atropos trainer command"


class KeyVerdict(StrEnum):
    """Verdict on a key that didn't simply set a value. The page has a list for each verdict, in this order."""

    WRONG = "Values that can't be used"
    CONTRADICTION = "Contradictions"
    UNKNOWN = "Unknown keys"
    LEFT_OUT = "Known, and not taken"
    ASSUMED = "Adjusted or assumed"


class UnreadableDocument(ValueError):
    """Failure to read a document, or to recognise its kind; the message says where and why."""


class WrongValue(ValueError):
    """Refusal of a key's value. The message is the beginning of a sentence, such as `Expected a number`."""


@dataclass(frozen=True)
class Note:
    verdict: KeyVerdict
    key: str
    """The key in the document; "" if the note concerns several."""
    text: str
    line: int | None = None
    path: str = ""
    """The path of the spec that the note concerns, if any."""
    raw: str = ""
    """The value as written, if it is invalid."""


@dataclass
class Reading:
    kind: DocumentKind
    values: dict[str, Any] = field(default_factory=dict)
    """Values by path in the spec."""
    sources: dict[str, str] = field(default_factory=dict)
    """Keys in the document by path in the spec."""
    notes: list[Note] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    """Keys whose values were read, in the document's order."""
    leads: dict[str, list[str]] = field(default_factory=dict)
    """Names in the document of what is chosen here by hand: "dataset" and "rewards", and the "weights" of these."""
    code: dict[str, str] = field(default_factory=dict)
    """Source of the reward functions that the document has the text of, by name."""
    by_default: list[str] = field(default_factory=list)
    """Keys that the document omits and whose values are the tool's defaults."""
    complete: bool = False
    """True for our own documents, in which a missing setting means its default."""

    def __post_init__(self) -> None:
        """Restore the specs' tuples, which a message between processes turns into lists."""
        for path, value in self.values.items():
            if isinstance(value, list) and path.startswith(("hardware.", "lora.")):
                self.values[path] = tuple(value)

    def note(self, verdict: KeyVerdict, key: str, text: str, **details: Any) -> None:
        if len(self.notes) < MAX_NOTES:
            self.notes.append(Note(verdict, key[:80], text, **details))
        elif len(self.notes) == MAX_NOTES:
            self.notes.append(Note(KeyVerdict.UNKNOWN, "", "More notes aren't listed here."))

    def put(self, path: str, value: Any, key: str) -> None:
        self.values[path] = value
        self.sources[path] = key

    def pop(self, path: str, default: Any = None) -> Any:
        """Remove and return the value at a path, such as a temporary one, whose path begins with an underscore."""
        self.sources.pop(path, None)
        return self.values.pop(path, default)

    def take(self, path: str) -> tuple[str, Any]:
        """Remove a value and return (its key in the document, the value), or ("", None) if there is none."""
        return self.sources.get(path, ""), self.pop(path)

    def below(self, prefix: str) -> dict[str, Any]:
        """Return the values below a path, keyed by the rest of their paths."""
        start = f"{prefix}."
        return {path.removeprefix(start): value for path, value in self.values.items() if path.startswith(start)}

    def states(self, path: str) -> bool:
        """Return whether a value comes from the document itself, not from a default of its tool."""
        return path in self.values and self.sources.get(path) not in self.by_default

    @property
    def sizes(self) -> tuple[int, int] | None:
        """Batch size per process and gradient accumulation, if both are known."""
        batch = self.values.get("grpo.per_device_train_batch_size")
        accumulation = self.values.get("grpo.gradient_accumulation_steps")
        return (batch, accumulation) if isinstance(batch, int) and isinstance(accumulation, int) else None

    @property
    def listed(self) -> list[tuple[KeyVerdict, list[Note]]]:
        """Notes grouped by verdict, for the pages."""
        groups = [(verdict, [note for note in self.notes if note.verdict == verdict]) for verdict in KeyVerdict]
        return [(verdict, notes) for verdict, notes in groups if notes]
