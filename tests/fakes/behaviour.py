"""How a fake shall misbehave: from its environment variable, and from the name of its run, so that runs on one
installation can differ.

A run called `overnight #trainer=forever,no_save #vllm=slow:3` gives its trainer `forever,no_save` and its server
`slow:3`. Standard library only: the fakes import it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path


def of(program: str, variable: str, folder: Path) -> dict[str, str]:
    """{"slow": "3"}; `folder` is the attempt's, where spec.json names the run."""
    words = os.environ.get(variable, "").split(",")
    try:
        name = json.loads((folder / "spec.json").read_text())["run"]["name"]
    except (FileNotFoundError, KeyError):
        name = ""
    for part in name.split():
        if part.startswith(f"#{program}="):
            words += part.partition("=")[2].split(",")
    return dict(word.partition(":")[::2] for word in words if word)
