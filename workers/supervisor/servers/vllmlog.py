"""What vLLM says at its start of the memory it takes: weights, KV cache, CUDA graphs."""

from __future__ import annotations

import re
from pathlib import Path

MOST_BYTES = 4 << 20
"""A start's log is some hundred lines; what is beyond this is requests."""
_WEIGHTS = re.compile(rb"Model loading took ([\d.]+) ?Gi?B")
_CACHE = re.compile(rb"Available KV cache memory: ([\d.]+) ?Gi?B")
_TOKENS = re.compile(rb"KV cache size: ([\d,]+) tokens")
_GRAPHS = re.compile(rb"Graph capturing finished in .{1,40}?took ([\d.]+) ?Gi?B")


def memory_in_words(log: Path) -> str:
    """One sentence; "" where the log says nothing of it. Of several processes, the largest numbers count."""
    try:
        with log.open("rb") as file:
            text = file.read(MOST_BYTES)
    except OSError:
        return ""
    weights, cache, graphs = (_most(pattern, text) for pattern in (_WEIGHTS, _CACHE, _GRAPHS))
    tokens = _most(_TOKENS, text)
    parts = [f"{weights:.3g} GiB of weights"] if weights else []
    if cache:
        parts.append(f"{cache:.3g} GiB of KV cache" + (f" for {tokens:,.0f} tokens" if tokens else ""))
    if graphs:
        parts.append(f"{graphs:.3g} GiB of CUDA graphs")
    return f"On each of its GPUs vLLM took {', '.join(parts)}." if parts else ""


def _most(pattern: re.Pattern[bytes], text: bytes) -> float:
    found = [match.replace(b",", b"") for match in pattern.findall(text)]
    return max((float(number) for number in found if number.replace(b".", b"", 1).isdigit()), default=0.0)
