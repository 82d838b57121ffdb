"""A violation of a rule of the training stack."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    field: str
    """The related form field: a GRPOConfig argument, or a field of HardwareSpec (servers' with the prefix `server_`) or
    LoraSpec (with the prefix `lora_`)."""
    sentence: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.sentence} {self.fix}".rstrip()
