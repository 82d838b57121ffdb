"""GRPO state that transformers checkpoints lack, without which a resumed run would differ.

TRL generates once and trains on the result for several steps (num_iterations, steps_per_generation); a checkpoint
between two generations must include the completions. And TRL's sampler draws each epoch's order from a generator that
is new in each process, so a resumed second epoch would repeat the order of the first.
"""

import json
from pathlib import Path
from typing import Any

import torch


def save(checkpoint: Path, *, rank: int, micro_step: int, batches: list[dict[str, Any]] | None) -> None:
    torch.save({"micro_step": micro_step, "batches": batches}, _path(checkpoint, rank))


def load(checkpoint: Path, *, rank: int) -> tuple[int, list[dict[str, Any]] | None]:
    """Load and return (micro-step, completions in use), or (0, None) from a checkpoint saved just before a
    generation."""
    path = _path(checkpoint, rank)
    if not path.is_file():
        return 0, None
    state = torch.load(path, weights_only=True)  # tensors and numbers: nothing in it may run code
    return state["micro_step"], state["batches"]


def epochs_done(checkpoint: Path) -> int:
    state = json.loads((checkpoint / "trainer_state.json").read_bytes())
    return int((state.get("epoch") or 0.0) + 1e-6)  # 2.9999999 after the last step of the third epoch


def let_cpu_ranks_load() -> None:
    """Let torch.load accept devices such as cpu:1, which is what accelerate calls rank 1's device on a CPU."""
    torch.serialization.register_package(
        priority=50,
        tagger=lambda storage: None,
        deserializer=lambda storage, location: storage if location.startswith("cpu:") else None,
    )


def _path(checkpoint: Path, rank: int) -> Path:
    return checkpoint / f"rollout_state_{rank}.pt"
