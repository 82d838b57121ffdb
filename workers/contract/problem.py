"""What a rule of the training stack says when it is broken."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    field: str
    """The form field that it belongs beside: a GRPOConfig argument, a field of HardwareSpec (a server's with `server_`
    before it) or of LoraSpec (with `lora_` before it)."""
    sentence: str
    fix: str = ""
    """What to do about it, as a sentence."""

    def __str__(self) -> str:
        return f"{self.sentence} {self.fix}".rstrip()
