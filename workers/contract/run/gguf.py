"""GGUF files, to which llama.cpp's own script converts a model. Standard library only."""

import re
from dataclasses import dataclass

SCRIPT = "convert_hf_to_gguf.py"
"""The script, in the root of a checkout of llama.cpp."""
ENDING = ".gguf"


@dataclass(frozen=True)
class GgufType:
    label: str
    bits: float
    """Bits of each weight."""


TYPES = {
    "auto": GgufType("auto: bf16 or f16, as the weights", 16),
    "bf16": GgufType("bf16: 16 bits, range of float32", 16),
    "f16": GgufType("f16: 16 bits, finer, smaller range", 16),
    "q8_0": GgufType("q8_0: 8 bits, about half the size", 8.5),
}
"""The script's --outtype -> the type."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,149}")


def is_name(name: str) -> bool:
    """Return True for a possible file name, which becomes part of a path."""
    return bool(_NAME.fullmatch(name))
